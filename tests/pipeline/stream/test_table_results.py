"""Files of a batch after a failed commit; rows are written without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

import pyarrow as pa

from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.sinks.partitioned_writer import PartitionedWriter
from ottla.pipeline.sinks.table import DataFile, FileLayout, UnknownCommitError
from ottla.pipeline.stream import table_results
from ottla.pipeline.stream.state import StreamState
from ottla.pipeline.stream.table_results import TableResults

ROWS = pa.record_batch({"word": ["a", "b"], "count": [1, 2]})


def write_rows(frame: Any, layout: FileLayout, schema: Any, position: str, load_id: str) -> list[DataFile]:
    with PartitionedWriter(layout, schema, position, load_id) as writer:
        writer.add(ROWS.cast(schema))
        return list(writer.finish())


@pytest.mark.parametrize(("error", "stay"), [(UnknownCommitError("no answer"), True), (OperatorError("full"), False)])
def test_only_files_of_an_unreported_batch_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OttlaError, stay: bool
) -> None:
    """The table may still refer to them once its store has carried out the commit."""
    table = open_table(tmp_path / "table", format="delta")
    results = TableResults(table, "words", "append", [], StreamState(tmp_path / "state", 7))
    monkeypatch.setattr(table_results, "arrow_schema", lambda frame: ROWS.schema)
    monkeypatch.setattr(table_results, "write_rows", write_rows)

    def fail(*_: object) -> None:
        raise error

    frame = SimpleNamespace(sparkSession=None)
    results.open(frame)
    results.prepare(frame, 0)
    monkeypatch.setattr(table, "commit", fail)
    with pytest.raises(type(error)):
        results.commit(None, 0)
    results.discard()
    assert bool(list(tmp_path.rglob("part-*"))) == stay
