"""Lag of tables: in offsets and in time, deleted topics, all tables of a directory."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
pytest.importorskip("cronsim", reason="needs the extra `pipeline`")

from ottla.app import main  # noqa: E402
from ottla.client.admin.cluster import Cluster  # noqa: E402
from ottla.common.errors import OperatorError  # noqa: E402
from ottla.pipeline.cli.status import SUMMARY, by_lag, table_rows  # noqa: E402
from ottla.pipeline.operations.status import (  # noqa: E402
    PartitionStatus,
    TableStatus,
    find_tables,
    row_counts,
    table_status,
)
from ottla.pipeline.sinks.open_table import open_table  # noqa: E402
from ottla.pipeline.sinks.table import Table  # noqa: E402
from ottla.testing import Broker  # noqa: E402

from .limits import RUN_S  # noqa: E402
from .memory_cluster import MemoryCluster  # noqa: E402
from .sinks.loads import TOPIC, load, make_cluster  # noqa: E402


@pytest.fixture
def cluster() -> MemoryCluster:
    return make_cluster()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return open_table(tmp_path / "table")


def status(table: Table, cluster: Any) -> list[tuple[object, ...]]:
    """Partition, committed offset, end, lag, rows and note of each partition."""
    found = table_status(table, cluster, "read_committed").partitions
    return [(one.partition, one.committed, one.end, one.lag, one.rows, one.note) for one in found]


def test_complete_table_has_no_lag(cluster: MemoryCluster, table: Table) -> None:
    load(cluster, table)
    assert status(table, cluster) == [(0, 50, 50, 0, 50, ""), (1, 50, 50, 0, 50, "")]
    found = table_status(table, cluster, "read_committed")  # type: ignore[arg-type]
    assert {one.lag_s for one in found.partitions} == {0.0}
    assert found.last_load_ms == table.loads()[0].time_ms


def test_unloaded_records_have_age(cluster: MemoryCluster, table: Table) -> None:
    load(cluster, table)
    cluster.partitions[TOPIC, 1].append_times(round(time.time() * 1000) - 90_000)
    cluster.partitions[TOPIC, 1].append_values([b"later"])
    assert status(table, cluster) == [(0, 50, 50, 0, 50, ""), (1, 50, 52, 2, 50, "")]
    behind = table_status(table, cluster, "read_committed").partitions[1].lag_s  # type: ignore[arg-type]
    assert behind is not None
    assert 90 <= behind < 600


def test_partitions_that_were_added_count_from_their_start(cluster: MemoryCluster, table: Table) -> None:
    load(cluster, table)
    log = cluster.partitions[TOPIC, 2] = type(cluster.partitions[TOPIC, 0])()
    log.append_values([b"new"] * 7)
    assert status(table, cluster)[2] == (2, None, 7, 7, 0, "")


def test_added_partition_with_deleted_start_has_no_loss(cluster: MemoryCluster, table: Table) -> None:
    """A first load starts at the log start offset."""
    load(cluster, table)
    log = cluster.partitions[TOPIC, 2] = type(cluster.partitions[TOPIC, 0])()
    log.append_values([b"new"] * 7)
    log.log_start = 5
    assert status(table, cluster)[2] == (2, None, 7, 2, 0, "")
    log.log_start = 7
    assert status(table, cluster)[2] == (2, None, 7, 0, 0, "")


def test_records_that_retention_took_before_they_were_loaded(cluster: MemoryCluster, table: Table) -> None:
    load(cluster, table)
    log = cluster.partitions[TOPIC, 0]
    log.append_values([b"gone"] * 10)
    log.log_start = 55
    assert status(table, cluster)[0] == (0, 50, 60, 10, 50, "records were deleted before they were loaded")


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_is_gone(cluster: MemoryCluster, table: Table, again: bool) -> None:
    load(cluster, table)
    if again:
        cluster.fetches += 1  # else the id would be the same
        cluster.create(TOPIC, 2)
    else:
        del cluster.topic_ids[TOPIC]
    note = "created again" if again else "deleted"
    assert status(table, cluster) == [(0, 50, None, None, 50, note), (1, 50, None, None, 50, note)]


def test_a_topic_of_another_cluster(cluster: MemoryCluster, table: Table) -> None:
    load(cluster, table)
    cluster.cluster_id = "other"
    assert {one[-1] for one in status(table, cluster)} == {"of another cluster"}


def test_each_pipeline_of_a_table(cluster: MemoryCluster, table: Table) -> None:
    load(cluster, table)
    cluster.partitions[TOPIC, 0].append_values([b"more"])
    load(cluster, table, "second")
    found = table_status(table, cluster, "read_committed").partitions  # type: ignore[arg-type]
    assert [(one.pipeline_id, one.partition, one.lag) for one in found] == [
        ("default", 0, 1),
        ("default", 1, 0),
        ("second", 0, 0),
        ("second", 1, 0),
    ]


@pytest.mark.parametrize("columns", [(), ("topic",), ("topic", "partition"), ("date",), ("date", "partition")])
@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_rows_are_counted_by_partition(
    cluster: MemoryCluster, tmp_path: Path, kind: str, columns: tuple[str, ...]
) -> None:
    if kind == "iceberg":
        pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    table = open_table(tmp_path / "table", format=kind, partition_by=columns)
    assert row_counts(table) == {}
    load(cluster, table)
    assert row_counts(table) == {(TOPIC, 0): 50, (TOPIC, 1): 50}


def test_tables_are_found_below_a_directory(cluster: MemoryCluster, tmp_path: Path) -> None:
    for name in ("a", "deep/b", "_hidden/c"):
        load(cluster, open_table(tmp_path / name))
    assert list(find_tables(tmp_path)) == [str(tmp_path / "a"), str(tmp_path / "deep" / "b")]
    assert list(find_tables(tmp_path / "a")) == [str(tmp_path / "a")]


def test_topic_with_empty_first_partitions(cluster: MemoryCluster, tmp_path: Path) -> None:
    """The table has no offset for them."""
    cluster = MemoryCluster()
    cluster.create(TOPIC, 200)
    cluster.partitions[TOPIC, 150].append_values([b"v"])
    table = open_table(tmp_path / "table", format="parquet")
    load(cluster, table)
    found = status(table, cluster)
    assert len(found) == 200
    assert found[150] == (150, 1, 1, 0, 1, "")


def test_a_table_of_another_tool(tmp_path: Path, cluster: Any) -> None:
    deltalake.write_deltalake(tmp_path / "other", pa.table({"a": [1]}))
    table = open_table(tmp_path / "other")
    assert table_status(table, cluster, "read_committed").to_json() == {
        "table": str(tmp_path / "other"),
        "version": 0,
        "last_load_ms": None,
        "partitions": [],
        "error": None,
        "retriable": False,
    }


def test_a_file_that_can_not_be_read(cluster: MemoryCluster, table: Table) -> None:
    load(cluster, table)
    file = Path(table.files()[0])
    file.write_bytes(b"PAR1" + bytes(file.stat().st_size - 8) + b"PAR1")
    with pytest.raises(OperatorError, match=r"a file of the table .* can't be read: "):
        row_counts(table)
    file.unlink()
    with pytest.raises(OperatorError, match=r"a file of the table .* can't be read: "):
        row_counts(table)


def test_the_command_against_a_broker(ottla_broker: Broker, tmp_path: Path) -> None:
    """A table of another cluster: its topic does not exist here."""
    load(make_cluster(), open_table(tmp_path / "lake" / "clicks"))
    arguments = ["pipeline", "status", str(tmp_path / "lake"), "-b", ottla_broker.bootstrap_servers]
    with Cluster(ottla_broker.bootstrap_servers) as cluster:
        assert TOPIC not in cluster.topics.all()
    printed = CliRunner().invoke(main.cli, [*arguments, "--json"])
    assert printed.exit_code == 0, printed.output
    (found,) = json.loads(printed.output)
    assert [(one["partition"], one["committed"], one["note"]) for one in found["partitions"]] == [
        (0, 50, "of another cluster"),
        (1, 50, "of another cluster"),
    ]
    lines = CliRunner().invoke(main.cli, arguments).output.splitlines()
    assert lines[0].split()[:4] == ["TABLE", "PIPELINE", "TOPIC", "PARTITIONS"]
    (summary,) = lines[1:]
    assert summary.split()[2:4] == [TOPIC, "2"]
    assert summary.endswith("of another cluster")
    lines = CliRunner().invoke(main.cli, [*arguments, "--partitions"]).output.splitlines()
    assert lines[0].split()[:4] == ["TABLE", "PIPELINE", "TOPIC", "PARTITION"]
    assert [line.split()[3] for line in lines[1:]] == ["0", "1"]


def test_largest_lag_is_first_and_unknown_last() -> None:
    rows: list[list[object]] = [["a", None], ["b", 0], ["c", 7], ["d", "-"], ["e", 7]]
    assert [row[0] for row in by_lag(rows, 1)] == ["c", "e", "b", "a", "d"]


def test_summary_adds_the_partitions_of_each_topic() -> None:
    def part(topic: str, partition: int, lag: int | None, lag_s: float | None, note: str = "") -> PartitionStatus:
        return PartitionStatus("p", topic, partition, 1, 2, lag, lag_s, 10, partition, note)

    parts = [part("a", 0, 3, 60.0), part("a", 1, 4, 90.0), part("b", 0, None, None, "deleted"), part("b", 1, 0, 0.0)]
    rows = list(table_rows(TableStatus("t", 1, None, parts), len(SUMMARY), by_partition=False))
    assert rows == [
        ["t", "p", "a", 2, 7, "1m30s", 20, 1, "-", ""],
        ["t", "p", "b", 2, 0, "0s", 20, 1, "-", "deleted (1 of 2 partitions)"],
    ]
    unknown = TableStatus("t", 1, None, [part("b", 0, None, None, "deleted")])
    assert list(table_rows(unknown, len(SUMMARY), by_partition=False)) == [
        ["t", "p", "b", 1, None, None, 10, 0, "-", "deleted"]
    ]


def damage(table: Path, kind: str) -> None:
    """Damage the files that define a table of that format."""
    where = {"delta": "_delta_log", "parquet": "_ottla_log"}.get(kind)
    files = [table / "catalog.db"] if where is None else [path for path in (table / where).iterdir() if path.is_file()]
    for file in files:
        file.write_bytes(b"not of this format")


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_unreadable_table_does_not_hide_others(ottla_broker: Broker, tmp_path: Path, kind: str) -> None:
    if kind == "iceberg":
        pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    bad, good = tmp_path / "bad", tmp_path / "good"
    for path in (bad, good):
        load(make_cluster(), open_table(path, format=kind))
    damage(bad, kind)
    arguments = ["pipeline", "status", "-b", ottla_broker.bootstrap_servers]
    printed = CliRunner().invoke(main.cli, [*arguments, str(tmp_path), "--json"])
    assert printed.exit_code == 1, printed.output
    first, second = json.loads(printed.stdout)
    assert (first["table"], first["version"], first["partitions"]) == (str(bad), None, [])
    assert str(bad) in first["error"]
    assert printed.stderr == f"ottla: 1 of 2 tables can't be read: {first['error']}\n"
    assert (second["table"], second["error"], len(second["partitions"])) == (str(good), None, 2)
    lines = CliRunner().invoke(main.cli, [*arguments, str(tmp_path)]).stdout.splitlines()
    assert lines[1].split(maxsplit=1)[0] == str(bad)
    assert lines[1].endswith("can't be read")
    assert len(lines) == 3
    alone = CliRunner().invoke(main.cli, [*arguments, str(bad)])
    assert alone.exit_code == 2
    assert alone.stderr == f"ottla: {first['error']}\n"


def test_unreadable_directory_may_be_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions do not apply to root, so the system call itself is made to fail."""
    load(make_cluster(), open_table(tmp_path / "good"))
    locked = tmp_path / "locked"
    locked.mkdir()
    list_directory = Path.iterdir

    def refused(path: Path) -> Any:
        if path == locked:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return list_directory(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    found = find_tables(tmp_path)
    assert list(found) == [str(tmp_path / "good"), str(locked)]
    assert found[str(tmp_path / "good")] is None
    assert str(found[str(locked)]) == f"{locked} can't be searched for tables: permission denied ({locked})"


def test_status_without_tables_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, sentence in (
        (tmp_path, "no table found in"),
        (tmp_path / "x", "does not exist"),
        (tmp_path / "file", "file is not a directory, but a table is one: name another"),
    ):
        result = CliRunner().invoke(main.cli, ["pipeline", "status", str(path)])
        assert result.exit_code == 2
        assert sentence in result.output


def test_non_utf8_path_is_reported_as_bytes(tmp_path: Path) -> None:
    """Not as Python's surrogates, which do not identify the file."""
    path = f"{tmp_path}/x\udcff"
    assert refusal("status", path) == f"ottla: the directory {tmp_path}/x\\xff does not exist\n"
    sentence = f"the path b'{tmp_path}/x\\xff' of the table is not valid UTF-8; choose another directory"
    assert refusal("compact", "--table", path) == f"ottla: {sentence}\n"


def refusal(*arguments: str) -> str:
    """Output of a refused pipeline command, in a process of its own for the encoding of its streams."""
    command = [sys.executable, "-m", "ottla", "pipeline", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 2
    return done.stderr
