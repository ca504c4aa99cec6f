"""Guarantees of every table format: exactly once under races and kills, offsets that survive."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

import pyarrow.parquet as pq  # noqa: E402
from deltalake.table import TableAlterer  # noqa: E402

from ottla.pipeline.model.decode import SCHEMA  # noqa: E402
from ottla.pipeline.model.plan import KnownTopics  # noqa: E402
from ottla.pipeline.operations.status import find_tables, row_counts  # noqa: E402
from ottla.pipeline.sinks.dataset import open_dataset  # noqa: E402
from ottla.pipeline.sinks.open_table import found_format, open_table  # noqa: E402
from ottla.pipeline.sinks.parquet import ParquetTarget  # noqa: E402
from ottla.pipeline.sinks.table import StaleCommitError, Table, TableCommit  # noqa: E402
from ottla.pipeline.sinks.writer import discard_load  # noqa: E402
from ottla.pipeline.stores.locations import is_url  # noqa: E402
from ottla.pipeline.stores.open_store import open_store  # noqa: E402

from ..forks import Forks  # noqa: E402
from ..memory_cluster import MemoryCluster  # noqa: E402
from .loads import commit, load, make_cluster, plan_load, topic_rows, write_files  # noqa: E402
from .test_delta import ODD_NAMES  # noqa: E402

RACERS = 4


def again(table: Table) -> Table:
    """The same table, opened again as another process does."""
    return open_table(table.location)


def content(table: Table) -> Any:
    """All rows, by another reader if the format has one for the store."""
    if is_url(table.location):
        return open_dataset(table.layout(), table.schema(), table.files()).to_table()
    kind = found_format(open_store(table.location))
    if kind == "delta":
        return deltalake.DeltaTable(table.location).to_pyarrow_table()
    if kind == "iceberg":
        from pyiceberg.catalog import load_catalog
        from sqlalchemy import URL

        address = URL.create("sqlite", database=f"{table.location}/catalog.db").render_as_string()
        return load_catalog("ottla", type="sql", uri=address).load_table("ottla.records").scan().to_arrow()
    return pa.concat_tables([pq.ParquetFile(path).read() for path in table.files()], promote_options="default")


def rows(table: Table) -> list[tuple[int, int]]:
    found = content(table)
    return sorted(zip(found.column("partition").to_pylist(), found.column("offset").to_pylist(), strict=True))


def test_load_adds_new_records_once(cluster: MemoryCluster, placed_table: Table) -> None:
    table = placed_table
    first = load(cluster, table)
    assert rows(table) == topic_rows(cluster)
    assert load(cluster, again(table)) is None
    cluster.partitions["clicks", 1].append_values([b"more"])
    second = load(cluster, again(table))
    assert first is not None
    assert second == again(table).version() > first
    assert rows(table) == topic_rows(cluster)
    assert table.known_topics().ids.keys() == {"clicks"}
    store = table.layout().store
    found = {file.path for file in store.files() if file.name.startswith("part-")}
    assert {store.relative(path) for path in table.files()} == table.named_files() == found
    assert list(find_tables(table.location.removesuffix("/table"))) == [table.location]


@pytest.mark.promise("P4")
def test_a_topic_of_another_cluster_is_refused(cluster: MemoryCluster, table: Table) -> None:
    """Its rows would look like the table's own; another topic of that cluster is accepted."""
    other = make_cluster()
    other.cluster_id, other.topic_ids["clicks"] = "other", b"o" * 16
    late = plan_load(other, table)
    load(cluster, table)
    sentence = "'clicks' was loaded from cluster memory, .* names cluster other, .* load from other into another table"
    with pytest.raises(OperatorError, match=sentence):
        plan_load(other, again(table))
    files = write_files(other, again(table), late, "late")
    with pytest.raises(StaleCommitError, match="'clicks' of cluster memory in the meantime"):
        commit(again(table), late, files, "late")
    assert rows(table) == topic_rows(cluster)
    del other.topic_ids["clicks"]
    other.create("orders", 1)
    other.partitions["orders", 0].append_values([b"one"])
    assert load(other, again(table)) == again(table).version()
    again(table).compact(1 << 30, "compaction", lambda: None)
    assert again(table).known_topics().clusters == {"clicks": "memory", "orders": "other"}


def test_table_without_cluster_ids_is_loaded(cluster: MemoryCluster, table: Table) -> None:
    cluster.cluster_id = ""
    load(cluster, table)
    assert again(table).known_topics().clusters == {}
    other = make_cluster(60)
    other.topic_ids["clicks"] = b"o" * 16
    assert "or its cluster is another one" in plan_load(other, again(table)).notes[0]
    load(other, again(table))
    assert again(table).known_topics().clusters == {"clicks": "memory"}


def test_a_table_remembers_its_loads(cluster: MemoryCluster, table: Table) -> None:
    assert table.loads() == []
    load(cluster, table)
    load(cluster, again(table), "second")
    cluster.partitions["clicks", 1].append_values([b"more"])
    load(cluster, again(table), "second")
    loads = again(table).loads()
    assert [(one.pipeline_id, one.rows) for one in loads] == [("second", 1), ("second", 100), ("default", 100)]
    times = [one.time_ms for one in loads]
    assert times == sorted(times, reverse=True)
    assert times[-1] > 1_700_000_000_000
    again(table).compact(1 << 30, "compaction", lambda: None)
    assert again(table).loads() == loads


@pytest.mark.parametrize("columns", [("topic",), ("topic", "partition")])
def test_partition_columns_have_their_values(
    cluster: MemoryCluster, kind: str, tmp_path: Path, columns: tuple[str, ...]
) -> None:
    table = open_table(tmp_path / "table", format=kind, partition_by=columns)
    load(cluster, table)
    assert again(table).layout().partition_columns == columns
    assert all("/topic=clicks/" in path for path in table.files())
    if kind != "parquet":  # its readers take them from the path
        assert rows(table) == topic_rows(cluster)
        assert set(content(table).column("topic").to_pylist()) == {"clicks"}


@pytest.mark.parametrize("name", ["_under", "__consumer_offsets", "-dash", ".dot", "t" * 249])
def test_a_topic_of_any_name_has_its_directory(kind: str, tmp_path: Path, name: str) -> None:
    """None of its rows goes to the dead letters, or is lost in row counts and rewrites."""
    cluster = MemoryCluster()
    cluster.create(name, 1)
    table = open_table(tmp_path / "table", format=kind, partition_by=("topic",))
    for value in (b"one", b"two"):
        cluster.partitions[name, 0].append_values([value])
        load(cluster, table)
    assert [Path(path).parent.name for path in table.files()] == [f"topic={name}"] * 2
    table.compact(1 << 30, "compaction", lambda: None)
    assert len(table.files()) == 1
    assert row_counts(again(table)) == {(name, 0): 2}


def test_in_directories_of_any_name(cluster: MemoryCluster, kind: str, tmp_path: Path) -> None:
    for name in ODD_NAMES:
        table = open_table(tmp_path / name, format=kind)
        load(cluster, table)
        assert again(table).committed_offsets([]) == {}
        assert rows(table) == topic_rows(cluster), name


@pytest.mark.promise("P2")
def test_of_racing_committers_one_wins(
    cluster: MemoryCluster, placed_table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have the same plan and files of their own, and commit concurrently; also if the environment disables
    conditional puts of delta-rs."""
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    table = placed_table
    plan = plan_load(cluster, table)
    files = [write_files(cluster, table, plan, f"load{number}") for number in range(RACERS)]
    barrier, outcomes = threading.Barrier(RACERS), dict[int, object]()

    def race(number: int) -> None:
        mine = again(table)
        barrier.wait()
        try:
            outcomes[number] = commit(mine, plan, files[number], f"load{number}")
        except StaleCommitError as error:
            outcomes[number] = error

    threads = [threading.Thread(target=race, args=(number,)) for number in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = sorted(type(outcome).__name__ for outcome in outcomes.values())
    assert found == ["CommitResult"] + ["StaleCommitError"] * 3
    assert rows(table) == topic_rows(cluster)
    assert load(cluster, again(table)) is None


def test_committers_of_other_pipelines_all_win(cluster: MemoryCluster, placed_table: Table) -> None:
    table = placed_table
    table.ensure(SCHEMA)
    errors: list[Exception] = []

    def run(number: int) -> None:
        try:
            load(cluster, again(table), f"pipeline{number}")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert rows(table) == sorted(topic_rows(cluster) * RACERS)


def test_a_late_committer_is_refused(cluster: MemoryCluster, table: Table) -> None:
    """Also one that opens the table again, and one with a plan that ends below the committed offset."""
    low = plan_load(cluster, table)
    low_files = write_files(cluster, table, low, "low")
    for index in range(2):
        cluster.partitions["clicks", index].append_values([b"more"])
    high = plan_load(cluster, table)
    commit(table, high, write_files(cluster, table, high, "high"), "high")
    for late in (table, again(table)):
        with pytest.raises(StaleCommitError, match=r"from the start to offset 51 .*run it again"):
            commit(late, low, low_files, "low")
    assert rows(table) == topic_rows(cluster)
    discard_load(table.layout().store, "low", table.named_files())
    assert {Path(path) for path in table.files()} == set(Path(table.location).rglob("part-*"))


def test_repeated_commit_of_killed_load_is_refused(cluster: MemoryCluster, table: Table) -> None:
    """The same files under the same load id are refused as well: their offsets are committed."""
    plan = plan_load(cluster, table)
    files = write_files(cluster, table, plan, "one")
    commit(table, plan, files, "one")
    with pytest.raises(StaleCommitError):
        commit(again(table), plan, files, "one")
    assert rows(table) == topic_rows(cluster)


@pytest.mark.promise("P1")
@pytest.mark.parametrize("step", ["0", "1", "2", "3", "4", "5", "6", "log", "after"])
def test_a_kill_while_committing(committer: Forks, kind: str, table: Table, step: str) -> None:
    """After a kill at any step the next load adds the rest: nothing is lost or duplicated."""
    assert committer.run(kind, table.location, step) == -signal.SIGKILL
    cluster = make_cluster()
    before = rows(table) if table.files() else []
    assert before in ([], topic_rows(cluster))
    if step == "after":
        assert before
    assert (load(cluster, table) is None) == bool(before)
    assert rows(table) == topic_rows(cluster)


def test_offsets_move_without_files(cluster: MemoryCluster, table: Table) -> None:
    table.ensure(SCHEMA)
    commit(table, plan_load(cluster, table), [], "empty")
    assert load(cluster, again(table)) is None
    assert table.files() == []


def test_files_are_replaced_once(cluster: MemoryCluster, table: Table) -> None:
    """As a compaction or an upsert does: in one commit, and not if another writer removed them."""
    load(cluster, table)
    old = table.files()
    plan = plan_load(cluster, table, "copy")
    files = write_files(cluster, table, plan, "copy")
    table.commit(TableCommit("copy", files, removed=old))
    assert rows(table) == topic_rows(cluster)
    assert not set(old) & set(again(table).files())
    with pytest.raises(StaleCommitError, match="from the table in the meantime"):
        again(table).commit(TableCommit("late", files, removed=old))
    assert load(cluster, again(table)) is None


def test_a_table_gets_new_columns(cluster: MemoryCluster, table: Table) -> None:
    load(cluster, table)
    wider = table.widen(pa.schema([("extra", pa.int64()), ("offset", pa.int64())]))
    assert wider.names == again(table).schema().names == [*SCHEMA.names, "extra"]
    assert table.widen(wider) == wider
    cluster.partitions["clicks", 0].append_values([b"more"])
    load(cluster, again(table))
    assert rows(table) == topic_rows(cluster)
    with pytest.raises(OperatorError, match="value"):
        table.widen(pa.schema([("value", pa.int64())]))


def test_load_commits_after_concurrent_column_addition(
    cluster: MemoryCluster, kind: str, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(cluster, table)
    ours, theirs = (pa.schema([(name, pa.int64())]) for name in ("ours", "theirs"))
    committer, name = committer_of(kind)
    write = getattr(committer, name)

    def lose_the_race(*arguments: Any, **named: Any) -> Any:
        monkeypatch.undo()
        again(table).widen(theirs)
        return write(*arguments, **named)

    monkeypatch.setattr(committer, name, lose_the_race)
    assert table.widen(ours).names == again(table).schema().names == [*SCHEMA.names, "theirs", "ours"]


def committer_of(kind: str) -> tuple[type, str]:
    """Commits the next version of a table at a given call."""
    if kind == "delta":
        return TableAlterer, "add_columns"
    if kind == "parquet":
        return ParquetTarget, "_write"
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog, "commit_table"


def test_existing_table_decides_format(table: Table, kind: str, cluster: MemoryCluster) -> None:
    assert found_format(open_store(table.location)) is None
    load(cluster, table)
    assert found_format(open_store(table.location)) == kind
    assert type(again(table)) is type(table)
    other = "parquet" if kind == "delta" else "delta"
    with pytest.raises(OperatorError, match=f"is a table of {kind}, not of {other}"):
        open_table(table.location, format=other)


def test_missing_table_is_reported(table: Table) -> None:
    assert not table.exists()
    assert table.committed_offsets(["a"]) == {"a": None}
    assert table.known_topics() == KnownTopics()
    for ask in (table.files, table.version, table.schema, table.named_files):
        with pytest.raises(OperatorError, match=r"no .*table.* found in"):
            ask()


def test_a_file_where_the_table_should_be(table: Table) -> None:
    Path(table.location).touch()
    with pytest.raises(OperatorError, match=r"can't be created"):
        table.ensure(SCHEMA)


def test_a_commit_without_its_files_is_refused(cluster: MemoryCluster, table: Table) -> None:
    plan = plan_load(cluster, table)
    files = write_files(cluster, table, plan, "one")
    Path(table.location, files[0].path).unlink()
    with pytest.raises(OperatorError, match="nothing was committed: 1 files"):
        commit(table, plan, files, "one")
    assert table.files() == []
    assert load(cluster, again(table)) is not None
    assert rows(table) == topic_rows(cluster)
