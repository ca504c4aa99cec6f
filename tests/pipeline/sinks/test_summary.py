"""Summaries of tables of every format: rows, files, loads and the latest dead letters, without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla.common.errors import OperatorError
from ottla.pipeline.load.leases import EXPIRY_S, LEASE_DIRECTORY
from ottla.pipeline.operations import summary as module
from ottla.pipeline.operations.summary import latest_dead_letters, summarize
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.sinks.table import Table

from ..memory_cluster import MemoryCluster
from .loads import TOPIC, add_letters, load

WITHOUT_SPARK = """
import sys
from ottla.pipeline.operations.status import ClusterView, find_tables, table_status
from ottla.pipeline.operations.summary import latest_dead_letters, summarize
from ottla.pipeline.sinks.open_table import open_table
(location,) = find_tables(sys.argv[1])
print(summarize(open_table(location), 0).rows, len(latest_dead_letters(open_table(location), 5)))
sys.exit("pyspark" in sys.modules)
"""


def test_summary_has_rows_files_and_loads(cluster: MemoryCluster, table: Table, kind: str) -> None:
    load(cluster, table)
    cluster.partitions[TOPIC, 1].append_values([b"more"] * 7)
    load(cluster, table)
    found = summarize(open_table(table.location), 0)
    assert (found.format, found.rows, found.files, found.dead_letters) == (kind, 107, 3, 0)
    assert found.size_bytes > 0
    assert found.topics.clusters == {TOPIC: "memory"}
    loads = [(each.pipeline_id, each.rows, each.files) for each in found.loads]
    assert loads == [("default", 7, 1), ("default", 100, 2)]
    assert found.loads == table.loads()


def test_killed_load_is_counted_until_a_vacuum(cluster: MemoryCluster, table: Table) -> None:
    load(cluster, table)
    store = open_table(table.location).layout().store
    store.create(f"{LEASE_DIRECTORY}/killed", b"")
    written_ms = store.sync(f"{LEASE_DIRECTORY}/killed").modified_ms
    later_ms = written_ms + round(EXPIRY_S * 1000) + 1
    found = [summarize(table, now_ms) for now_ms in (written_ms, later_ms)]
    assert [(each.running_loads, each.failed_loads) for each in found] == [(1, 0), (0, 1)]
    assert [file.name for file in store.files(LEASE_DIRECTORY)] == ["killed"], "a reader writes nothing"


def test_dead_letters_are_counted_and_the_latest_are_read(cluster: MemoryCluster, table: Table) -> None:
    load(cluster, table)
    assert latest_dead_letters(table, 3) == []
    add_letters(table, TOPIC, ["old"] * 4)
    add_letters(table, TOPIC, [f"reason {number}" for number in range(4)], first_ms=50_000)
    assert summarize(table, 0).dead_letters == 8
    found = latest_dead_letters(open_table(table.location), 5)
    assert [(each.offset, each.reason) for each in found] == [
        (3, "reason 3"),
        (2, "reason 2"),
        (1, "reason 1"),
        (0, "reason 0"),
        (3, "old"),
    ]
    assert {(each.topic, each.partition) for each in found} == {(TOPIC, 0)}


def test_search_for_dead_letters_is_bounded(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = open_table(tmp_path / "table", format="parquet")
    load(cluster, table)
    for number in range(4):
        add_letters(table, TOPIC, [f"file {number}"])
    monkeypatch.setattr(module, "MAX_LETTER_FILES", 3)
    assert len(latest_dead_letters(table, 10)) == 3
    monkeypatch.setattr(module, "MAX_LETTER_ROWS", 1)
    assert len(latest_dead_letters(table, 10)) == 1


def test_file_of_dead_letters_that_is_damaged_is_named(cluster: MemoryCluster, table: Table) -> None:
    load(cluster, table)
    add_letters(table, TOPIC, ["bad"])
    Path(table.dead_letters().files()[0]).write_bytes(b"PAR1 but not Parquet PAR1")
    with pytest.raises(OperatorError, match=r"a file of the table .*_dead_letters can't be read: "):
        latest_dead_letters(table, 1)


def test_status_and_summary_import_no_spark(cluster: MemoryCluster, table: Table) -> None:
    load(cluster, table)
    add_letters(table, TOPIC, ["bad"])
    command = [sys.executable, "-c", WITHOUT_SPARK, table.location]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "100 1\n"), done.stderr
