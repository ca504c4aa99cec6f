"""Tables in a Python program, as in a notebook: load, status, redrive, compact and vacuum."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("deltalake", reason="needs the extra `lake`")

from ottla.pipeline.api import (
    DeadLettersError,
    LetterLimit,
    OperatorError,
    PlanSettings,
    compact,
    load,
    open_table,
    redrive,
    status,
    vacuum,
)
from ottla.pipeline.load.driver import LoadSummary

from .topics import produce


def test_tables_in_a_notebook(bootstrap: str, topic: str, tmp_path: Path) -> None:
    table = open_table(tmp_path / "prices", partition_by=["partition"])

    def load_json(settings: PlanSettings | None = None) -> LoadSummary:
        return load(topic, table, bootstrap_servers=bootstrap, decode="json", settings=settings, engine="local")

    produce(bootstrap, topic, ({"value": b'{"price": %d}' % number, "partition": 0} for number in range(10)))
    produce(bootstrap, topic, [{"value": b"{", "partition": 0}])
    first = load_json()
    assert (first.rows, first.dead_letters, first.columns_added) == (10, 1, ["price"])
    assert first.ranges == {f"{topic}/0": (0, 11)}
    assert (first.engine, first.group) == ("local", "ottla-load.prices.default")
    assert load_json().version is None

    produce(bootstrap, topic, [{"value": b"[", "partition": 0}, {"value": b'{"price": 10}', "partition": 0}])
    with pytest.raises(DeadLettersError, match="1 of 2 records can't be stored"):
        load_json(PlanSettings(max_dead_letters=LetterLimit(0)))
    assert load_json().rows == 1
    [found] = status(tmp_path, bootstrap_servers=bootstrap)
    assert (found.table, found.error) == (str(tmp_path / "prices"), None)
    assert {part.partition: (part.lag, part.rows, part.dead_letters) for part in found.partitions}[0] == (0, 11, 2)

    assert redrive(table, "raw", dry_run=True).rows == 2
    assert redrive(tmp_path / "prices", "raw").rows == 2
    compacted = compact(table)
    assert (compacted.files_before, compacted.files_after) == (3, 1)
    assert (
        vacuum(table, retention=timedelta(0), dry_run=True).old_files == vacuum(table, retention=timedelta(0)).old_files
    )


@pytest.mark.parametrize("options", [{"decode": "xml"}, {"engine": "flink"}])
def test_unknown_names_are_refused_before_any_action(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(OperatorError, match=f"{next(iter(options.values()))!r} is not "):
        load("views", tmp_path / "views", bootstrap_servers="127.0.0.1:1", **options)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_import_loads_neither_arrow_nor_spark() -> None:
    heavy = {"pyarrow", "pyspark", "numpy", "pandas", "deltalake"}
    program = f"import sys, ottla.pipeline.api; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
