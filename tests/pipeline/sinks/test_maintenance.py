"""Vacuum and compaction of each format: safe beside loads, orphans removed, no offset moved."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla.pipeline.load import leases  # noqa: E402
from ottla.pipeline.load.compact import compact  # noqa: E402
from ottla.pipeline.load.leases import EXPIRY_S, LEASE_DIRECTORY, held_lease  # noqa: E402
from ottla.pipeline.operations import vacuum as vacuuming  # noqa: E402
from ottla.pipeline.operations.vacuum import vacuum  # noqa: E402
from ottla.pipeline.sinks import rewrite  # noqa: E402
from ottla.pipeline.sinks.delta import DeltaTarget  # noqa: E402
from ottla.pipeline.sinks.open_table import open_table  # noqa: E402
from ottla.pipeline.sinks.table import DataFile, Table  # noqa: E402
from ottla.pipeline.sinks.writer import NULL_DIRECTORY, load_of  # noqa: E402
from ottla.pipeline.stores.open_store import open_store  # noqa: E402
from ottla.pipeline.stores.store import Store  # noqa: E402

from ..memory_cluster import MemoryCluster  # noqa: E402
from .loads import commit, let_expire, load, plan_load, revoke_leases, topic_rows, write_files  # noqa: E402
from .test_formats import again, committer_of, content, rows  # noqa: E402

NONE = timedelta(0)


def data_files(table: Table) -> set[Path]:
    return set(Path(table.location).rglob("*.parquet")) - set(Path(table.location, "_delta_log").rglob("*.parquet"))


def load_often(cluster: MemoryCluster, table: Table, times: int = 4) -> None:
    for _ in range(times):
        cluster.partitions["clicks", 0].append_values([b"more"])
        load(cluster, table)


def raise_interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.promise("P7")
def test_a_running_load_keeps_its_files(cluster: MemoryCluster, table: Table) -> None:
    """Even though no version names its files yet; all other files are removed."""
    load(cluster, table)
    cluster.partitions["clicks", 0].append_values([b"more"])
    plan = plan_load(cluster, table)
    with held_lease(open_store(table.location), "running") as lease:
        files = write_files(cluster, table, plan, "running")
        summary = vacuum(again(table), NONE)
        assert (summary.abandoned_files, summary.old_files, summary.running_loads) == (0, 0, ["running"])
        lease.require()
        commit(table, plan, files, "running")
    assert rows(table) == topic_rows(cluster)
    assert not list(Path(table.location, LEASE_DIRECTORY).iterdir())


@pytest.mark.promise("P7")
def test_files_of_a_killed_load_go_at_once(cluster: MemoryCluster, table: Table) -> None:
    """If it was only suspended, it commits nothing."""
    load(cluster, table)
    cluster.partitions["clicks", 0].append_values([b"more"])
    plan = plan_load(cluster, table)
    with held_lease(open_store(table.location), "killed") as lease:
        write_files(cluster, table, plan, "killed")
        let_expire(table, "killed")
        assert vacuum(again(table), dry_run=True).abandoned_files == 1
        assert len(data_files(table)) == 3
        summary = vacuum(again(table))
        assert (summary.abandoned_files, summary.old_files) == (1, 0)
        assert summary.freed_bytes > 0
        with pytest.raises(OperatorError, match=r"the lease .* is gone"):
            lease.require()
    assert {str(path) for path in data_files(table)} == set(table.files())
    assert load(cluster, table) is not None
    assert rows(table) == topic_rows(cluster)


def test_vacuum_resumes_after_killed_one(cluster: MemoryCluster, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The killed vacuum had revoked the lease of a killed load, but not yet removed the files."""
    load(cluster, table)
    cluster.partitions["clicks", 0].append_values([b"more"])
    with suppress(KeyboardInterrupt), held_lease(open_store(table.location), "killed"):
        write_files(cluster, table, plan_load(cluster, table), "killed")
        raise KeyboardInterrupt
    let_expire(table, "killed")
    with monkeypatch.context() as patch:
        patch.setattr(vacuuming, "_remove", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            vacuum(again(table))
    assert vacuum(again(table)).abandoned_files == 1
    assert {str(path) for path in data_files(table)} == set(table.files())
    assert not list(Path(table.location, LEASE_DIRECTORY).iterdir())


def test_committed_files_of_killed_load_stay(cluster: MemoryCluster, table: Table) -> None:
    plan = plan_load(cluster, table)
    with held_lease(open_store(table.location), "killed"):
        commit(table, plan, write_files(cluster, table, plan, "killed"), "killed")
        let_expire(table, "killed")
        assert vacuum(again(table), NONE).abandoned_files == 0
    assert rows(table) == topic_rows(cluster)


def test_files_of_a_load_that_begins_beside_a_vacuum_stay(
    cluster: MemoryCluster, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load acquires its lease after the vacuum has read the leases."""
    load(cluster, table)
    cluster.partitions["clicks", 0].append_values([b"more"])
    plan = plan_load(cluster, table)
    with ExitStack() as stack:
        written = []

        def read_then_begin(store: Store) -> leases.Leases:
            found = leases.read_leases(store)
            stack.enter_context(held_lease(store, "late"))
            written.extend(write_files(cluster, table, plan, "late"))
            return found

        monkeypatch.setattr(vacuuming, "read_leases", read_then_begin)
        assert vacuum(again(table), NONE).running_loads == []
        commit(table, plan, written, "late")
    assert rows(table) == topic_rows(cluster)


def test_file_without_load_id_is_kept_for_lease_duration(cluster: MemoryCluster, table: Table) -> None:
    """It may belong to a running commit or compaction."""
    load(cluster, table)
    odd = Path(table.location, table.layout().subdirectory, "part-00000-c000.parquet")
    odd.touch()

    def after(age_s: float) -> bool:
        os.utime(odd, (time.time() - age_s,) * 2)
        vacuum(again(table), NONE)
        return odd.exists()

    assert after(EXPIRY_S - 60)
    with held_lease(open_store(table.location), "running"):
        assert after(EXPIRY_S + 60)
    assert not after(EXPIRY_S + 60)


def test_staged_files_of_killed_writers_are_removed(cluster: MemoryCluster, table: Table) -> None:
    load(cluster, table)
    old, new, foreign = (Path(table.location, f".{name}") for name in ("0" * 32, "1" * 32, "hidden"))
    for path in (old, new, foreign):
        path.touch()
    for path in (old, foreign):
        os.utime(path, (time.time() - EXPIRY_S - 60,) * 2)
    vacuum(again(table), NONE, dry_run=True)
    assert old.exists()
    vacuum(again(table), NONE)
    assert not old.exists()
    assert new.exists()
    assert foreign.exists()


def test_small_files_become_large_ones(cluster: MemoryCluster, table: Table) -> None:
    load_often(cluster, table)
    small = data_files(table)
    summary = compact(again(table))
    assert (summary.files_before, summary.files_after) == (len(small), 1)
    assert rows(table) == topic_rows(cluster)
    assert load(cluster, again(table)) is None
    assert compact(again(table)).version == summary.version
    assert small < data_files(table), "the small files stay readable"
    vacuum(again(table))
    assert small < data_files(table)
    assert vacuum(again(table), NONE).old_files >= len(small)
    assert {str(path) for path in data_files(table)} == set(table.files())
    assert rows(table) == topic_rows(cluster)
    load_often(cluster, table)
    assert rows(table) == topic_rows(cluster)


def test_each_partition_is_compacted_separately(cluster: MemoryCluster, kind: str, tmp_path: Path) -> None:
    table = open_table(tmp_path / "table", format=kind, partition_by=("topic", "partition"))
    load_often(cluster, table)
    assert compact(again(table)).files_after == 2
    if kind != "parquet":
        assert rows(table) == topic_rows(cluster)
    assert load(cluster, again(table)) is None


@pytest.mark.promise("P7")
def test_compaction_does_not_block_earlier_load(cluster: MemoryCluster, table: Table) -> None:
    """A load that planned and landed before a compaction commits after it."""
    load_often(cluster, table)
    cluster.partitions["clicks", 1].append_values([b"more"])
    plan = plan_load(cluster, table)
    files = write_files(cluster, table, plan, "load")
    compact(again(table))
    commit(table, plan, files, "load")
    assert rows(table) == topic_rows(cluster)


def test_compaction_with_revoked_lease_commits_nothing(
    cluster: MemoryCluster, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was suspended for so long that a vacuum removed its files."""
    load_often(cluster, table)
    named, write = table.files(), rewrite.rewrite_files

    def stand_still(*arguments: Any) -> DataFile:
        made = write(*arguments)
        revoke_leases(table)
        return made

    monkeypatch.setattr(rewrite, "rewrite_files", stand_still)
    with pytest.raises(OperatorError, match=r"the lease .* is gone"):
        compact(again(table))
    assert again(table).files() == named
    assert {str(path) for path in data_files(table)} == set(named)


def test_compacted_files_carry_load_id(cluster: MemoryCluster, table: Table) -> None:
    load_often(cluster, table)
    small = data_files(table)
    compact(again(table))
    [made] = data_files(table) - small
    assert load_of(made.name) is not None
    assert load_of(made.name) not in {load_of(path.name) for path in small}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])  # others write to these
@pytest.mark.parametrize("text", [NULL_DIRECTORY])
def test_compaction_refuses_unplaceable_partition_values(kind: str, tmp_path: Path, text: str) -> None:
    table = open_table(tmp_path / "table", format=kind, partition_by=("place",))
    schema = pa.schema([("place", pa.string()), ("number", pa.int64())])
    table.ensure(schema)
    for number in range(2):
        append(table, pa.table({"place": [text], "number": [number]}, schema=schema))
    before = table.version(), set(table.files())
    with pytest.raises(OperatorError, match=r"partition place=.* can't be a directory name"):
        compact(again(table))
    assert (again(table).version(), set(again(table).files())) == before
    assert sorted(content(table).column("number").to_pylist()) == [0, 1]


def append(table: Table, rows: Any) -> None:
    """Append as another writer does, by the library of the format."""
    if isinstance(table, DeltaTarget):
        deltalake.write_deltalake(table.location, rows, mode="append")
    else:
        made: Any = again(table)
        made._open().append(rows)


@pytest.mark.parametrize("kind", ["iceberg", "parquet"])  # Delta's log expires versions on its own
def test_load_commits_during_vacuum(
    cluster: MemoryCluster, kind: str, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_often(cluster, table)
    compact(again(table))
    cluster.partitions["clicks", 0].append_values([b"more"])
    committer, name = committer_of(kind)
    write = getattr(committer, name)

    def lose_the_race(*arguments: Any, **named: Any) -> Any:
        monkeypatch.undo()
        load(cluster, again(table))
        return write(*arguments, **named)

    monkeypatch.setattr(committer, name, lose_the_race)
    assert vacuum(again(table), NONE).old_files > 0
    assert {str(path) for path in data_files(table)} == set(again(table).files())
    assert rows(table) == topic_rows(cluster)


def test_missing_table_is_reported(table: Table) -> None:
    with pytest.raises(OperatorError, match=r"no .*table.* found in"):
        vacuum(table)
    with pytest.raises(OperatorError, match=r"no .*table.* found in"):
        compact(table)


def test_damaged_file_is_reported_and_nothing_changes(cluster: MemoryCluster, table: Table) -> None:
    load(cluster, table)
    load_often(cluster, table)
    damaged = Path(table.files()[0])
    damaged.write_bytes(bytes(damaged.stat().st_size))
    before = table.version(), set(table.files())
    with pytest.raises(OperatorError, match=str(table.location)):
        compact(again(table), 1 << 30)
    assert (again(table).version(), set(again(table).files())) == before
    assert data_files(table) == {Path(path) for path in before[1]}
