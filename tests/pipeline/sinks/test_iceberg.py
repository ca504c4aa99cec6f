"""Iceberg specifics: one snapshot on top of the checked one, errors looked up, offsets that survive snapshots."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
pytest.importorskip("sqlalchemy", reason="needs the extra `iceberg`")

from pyiceberg.exceptions import CommitFailedException  # noqa: E402

from ottla.pipeline.load.leased_files import leased_files  # noqa: E402
from ottla.pipeline.model.decode import SCHEMA  # noqa: E402
from ottla.pipeline.sinks import iceberg  # noqa: E402
from ottla.pipeline.sinks.iceberg import IcebergTarget  # noqa: E402
from ottla.pipeline.sinks.table import StaleCommitError, UnknownCommitError  # noqa: E402

from ..memory_cluster import MemoryCluster  # noqa: E402
from .loads import commit, load, make_cluster, plan_load, topic_rows, write_files  # noqa: E402


@pytest.fixture
def cluster() -> MemoryCluster:
    return make_cluster()


@pytest.fixture
def table(tmp_path: Path) -> IcebergTarget:
    return IcebergTarget(tmp_path / "table")


def rows(table: IcebergTarget) -> list[tuple[int, int]]:
    found = table._open().scan().to_arrow()
    return sorted(zip(found.column("partition").to_pylist(), found.column("offset").to_pylist(), strict=True))


def test_statistics_let_readers_skip_files(cluster: MemoryCluster, table: IcebergTarget) -> None:
    load(cluster, table)
    cluster.partitions["clicks", 0].append_values([b"more"])
    load(cluster, table)
    made = table._open()
    assert len(list(made.scan(row_filter="offset = 50").plan_files())) == 1
    assert made.scan(row_filter="offset = 50").to_arrow().num_rows == 1
    assert not list(made.scan(row_filter="timestamp > '2024-01-01T00:00:00+00:00'").plan_files())


def test_commit_metadata_is_readable(cluster: MemoryCluster, table: IcebergTarget) -> None:
    load(cluster, table)
    newest = table._open().current_snapshot()
    assert newest.summary["ottla.ranges"] == '{"clicks/0": [0, 50], "clicks/1": [0, 50]}'
    assert newest.summary["ottla.rows"] == newest.summary["total-records"] == "100"


def test_offsets_outlive_the_expiry_of_snapshots(cluster: MemoryCluster, table: IcebergTarget) -> None:
    for _ in range(3):
        load(cluster, table)
        cluster.partitions["clicks", 0].append_values([b"more"])
    load(cluster, table)
    table._open().maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    assert len(table._open().metadata.snapshots) == 1
    assert load(cluster, IcebergTarget(table.path)) is None
    assert rows(table) == topic_rows(cluster)


def test_many_small_commits_leave_few_manifests(cluster: MemoryCluster, table: IcebergTarget) -> None:
    """The number of metadata files is bounded, too."""
    table.ensure(SCHEMA)
    with table._open().transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "3", "write.metadata.previous-versions-max": "2"})
    for _ in range(6):
        cluster.partitions["clicks", 0].append_values([b"more"])
        load(cluster, table)
    snapshot = table._open().current_snapshot()
    assert len(snapshot.manifests(table._open().io)) <= 3
    assert len(list((table.path / "metadata").glob("*.metadata.json"))) <= 3
    assert rows(table) == topic_rows(cluster)


@pytest.mark.parametrize("error", [CommitFailedException("changed"), OSError("the network is gone")])
def test_an_error_after_the_commit_is_looked_up(
    cluster: MemoryCluster, table: IcebergTarget, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Also if others committed after it before the error was checked."""
    plan = plan_load(cluster, table)
    files = write_files(cluster, table, plan, "one")
    write: Callable[..., Any] = iceberg._write

    def write_then_fail(*arguments: object) -> Exception:
        monkeypatch.setattr(iceberg, "_write", write)
        assert write(*arguments) is None
        load(cluster, IcebergTarget(table.path), "other")
        return error

    monkeypatch.setattr(iceberg, "_write", write_then_fail)
    done = commit(table, plan, files, "one")
    assert (done.version, table.version()) == (1, 2)
    assert str(error) in done.note
    assert rows(table) == sorted(topic_rows(cluster) * 2)


def test_commit_of_other_load_with_same_plan_is_not_ours(
    cluster: MemoryCluster, table: IcebergTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It commits between our check of the offsets and our commit; pyiceberg must not put ours on top."""
    plan = plan_load(cluster, table)
    ours, theirs = (write_files(cluster, table, plan, name) for name in ("ours", "theirs"))
    write: Callable[..., Any] = iceberg._write

    def lose_the_race(*arguments: object) -> object:
        monkeypatch.setattr(iceberg, "_write", write)
        commit(IcebergTarget(table.path), plan, theirs, "theirs")
        return write(*arguments)

    monkeypatch.setattr(iceberg, "_write", lose_the_race)
    with pytest.raises(StaleCommitError):
        commit(table, plan, ours, "ours")
    assert sorted(table.files()) == sorted(str(table.path / file.path) for file in theirs)


def test_a_catalog_that_is_gone_after_the_commit(
    cluster: MemoryCluster, table: IcebergTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown outcome of the commit is not treated as a failed commit."""
    plan = plan_load(cluster, table)
    files = write_files(cluster, table, plan, "one")
    write: Callable[..., Any] = iceberg._write
    catalog = table.path / "catalog.db"

    def write_and_lose_the_catalog(*arguments: object) -> Exception:
        write(*arguments)
        catalog.rename(catalog.with_name("gone"))
        return OSError("the network is gone")

    monkeypatch.setattr(iceberg, "_write", write_and_lose_the_catalog)
    with pytest.raises(UnknownCommitError, match="the next load checks it"):
        commit(table, plan, files, "one")
    catalog.with_name("gone").rename(catalog)
    assert load(cluster, IcebergTarget(table.path)) is None
    assert rows(table) == topic_rows(cluster)


def test_a_failed_commit_to_the_own_catalog_is_final(
    cluster: MemoryCluster, table: IcebergTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are removed: a transaction of SQLite does not happen later."""
    plan = plan_load(cluster, table)
    table.ensure(SCHEMA)
    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "_write", lambda *_: OSError("the disk is full"))
        with (
            pytest.raises(OperatorError, match="could not be committed: the disk is full"),
            leased_files(table, "one"),
        ):
            commit(table, plan, write_files(cluster, table, plan, "one"), "one")
    assert not list(table.path.rglob("part-*"))
    load(cluster, table)
    assert rows(table) == topic_rows(cluster)


def test_unusable_tables_are_refused(cluster: MemoryCluster, table: IcebergTarget, tmp_path: Path) -> None:
    (tmp_path / "foreign" / "metadata").mkdir(parents=True)
    with pytest.raises(OperatorError, match="of another catalog"):
        IcebergTarget(tmp_path / "foreign").ensure(SCHEMA)
    load(cluster, table)
    with pytest.raises(OperatorError, match="lacks the column 'offset' of type"):
        table.ensure(SCHEMA.set(2, SCHEMA.field("offset").with_type(pa.int32())))
    with table._open().transaction() as change:
        change.set_properties({iceberg.RETRIES_KEY: "4"})
    with pytest.raises(OperatorError, match=r"does not set commit\.retry\.num-retries to 0"):
        table.ensure(SCHEMA)
    table.path.rename(tmp_path / "moved")
    with pytest.raises(OperatorError, match="move it back"):
        IcebergTarget(tmp_path / "moved").files()


@pytest.mark.promise("P3")
def test_a_table_that_was_rolled_back_is_refused(cluster: MemoryCluster, table: IcebergTarget) -> None:
    """Its offsets are those of the newest load, but its rows are older."""
    load(cluster, table)
    first = table._open().current_snapshot().snapshot_id
    cluster.partitions["clicks", 0].append_values([b"more"])
    load(cluster, table)
    table._open().manage_snapshots().rollback_to_snapshot(first).commit()
    cluster.partitions["clicks", 0].append_values([b"more"])
    with pytest.raises(OperatorError, match="rolled back below its newest load"):
        load(cluster, table)


def test_a_renamed_column_is_not_read_by_its_old_name(cluster: MemoryCluster, table: IcebergTarget) -> None:
    load(cluster, table)
    with table._open().update_schema() as change:
        change.rename_column("value", "payload")
    with pytest.raises(OperatorError, match=r"has renamed columns \('value'\)"):
        table.files()


@pytest.mark.parametrize("name", ["clicks", "a/b", "lake.", ""])
def test_invalid_catalog_names_are_refused(name: str) -> None:
    with pytest.raises(OperatorError, match=r"use NAMESPACE\.TABLE"):
        IcebergTarget(name, catalog_url="http://127.0.0.1:1")
