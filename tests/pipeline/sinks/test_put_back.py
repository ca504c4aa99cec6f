"""Tables that are rolled back to an older version below their loads: by RESTORE, in their logs, in their catalogs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla.pipeline.load.reading import PlannedRead, find_reading  # noqa: E402
from ottla.pipeline.model.plan import PlanSettings  # noqa: E402
from ottla.pipeline.model.rollback import LoadRefusedError, RolledBackError  # noqa: E402
from ottla.pipeline.operations.status import table_status  # noqa: E402
from ottla.pipeline.sinks.open_table import open_table  # noqa: E402
from ottla.pipeline.sinks.parquet import LOG_DIRECTORY  # noqa: E402
from ottla.pipeline.sinks.table import Table  # noqa: E402

from ..memory_cluster import MemoryCluster  # noqa: E402
from .loads import TOPIC, commit, load, plan_load, topic_rows, write_files  # noqa: E402
from .test_formats import again, rows  # noqa: E402


@pytest.fixture
def delta(tmp_path: Path) -> Table:
    return open_table(tmp_path / "table", format="delta")


def open_delta(table: Table) -> Any:
    return deltalake.DeltaTable(table.location)


def load_twice(cluster: MemoryCluster, table: Table) -> int:
    """Two loads, the second with one more row; returns the version of the first."""
    first = load(cluster, table)
    assert first is not None
    add_row(cluster)
    load(cluster, again(table))
    return first


def add_row(cluster: MemoryCluster) -> None:
    cluster.partitions[TOPIC, 0].append_values([b"more"])


def read(cluster: MemoryCluster, table: Table, on_rollback: Any = "fail") -> PlannedRead:
    settings = PlanSettings(on_rollback=on_rollback)
    return find_reading([TOPIC], again(table), cluster.open, settings, None)  # type: ignore[arg-type]


@pytest.mark.promise("P3")
def test_restored_delta_table_is_refused(cluster: MemoryCluster, delta: Table) -> None:
    open_delta_restored(delta, load_twice(cluster, delta))
    sentence = r"version 3 \(RESTORE\) rolled it back below its load of version 2 with 1 row,.*restore version 2.*skip$"
    with pytest.raises(RolledBackError, match=sentence):
        read(cluster, delta)
    add_row(cluster)
    with pytest.raises(RolledBackError, match="below its load of version 2"):
        load(cluster, again(delta))


def open_delta_restored(table: Table, to: Any) -> None:
    open_delta(table).restore(to)


def test_table_restored_to_a_time_is_refused(cluster: MemoryCluster, delta: Table) -> None:
    first = load(cluster, delta)
    assert first is not None
    moment = datetime.fromtimestamp(again(delta).loads()[0].time_ms / 1000, UTC)
    wait_past(moment)
    add_row(cluster)
    load(cluster, again(delta))
    open_delta_restored(delta, datetime.fromtimestamp(moment.timestamp() + 0.001, UTC))
    with pytest.raises(RolledBackError, match="rolled it back below its load of version 2"):
        read(cluster, delta)


def wait_past(moment: datetime) -> None:
    while time.time() < moment.timestamp() + 0.01:
        pass


def test_table_restored_under_a_load_is_refused(cluster: MemoryCluster, delta: Table) -> None:
    first = load_twice(cluster, delta)
    add_row(cluster)
    late = plan_load(cluster, again(delta))
    files = write_files(cluster, again(delta), late, "late")
    open_delta_restored(delta, first)
    with pytest.raises(RolledBackError, match="below its load of version 2"):
        commit(again(delta), late, files, "late")


def test_table_restored_forward_again_loads(cluster: MemoryCluster, delta: Table) -> None:
    open_delta_restored(delta, load_twice(cluster, delta))
    open_delta_restored(delta, 2)
    add_row(cluster)
    load(cluster, again(delta))
    assert rows(delta) == topic_rows(cluster)


def test_restore_without_lost_load_is_not_rollback(cluster: MemoryCluster, delta: Table) -> None:
    load_twice(cluster, delta)
    open_delta(delta).delete("offset < 10")
    open_delta_restored(delta, 2)
    assert again(delta).rollback() is None
    wait_past(datetime.now(UTC))
    moment = datetime.now(UTC)
    wait_past(moment)
    open_delta(delta).delete("offset < 20")
    open_delta_restored(delta, moment)
    assert again(delta).rollback() is None
    assert rows(delta) == topic_rows(cluster)


def delete_all(table: Any) -> None:
    table.delete()


def merge(table: Any) -> None:
    source = table.to_pyarrow_table()
    table.merge(source, "s.offset = t.offset", source_alias="s", target_alias="t").when_matched_delete().execute()


def optimize(table: Any) -> None:
    table.optimize.compact()


def overwrite_part(table: Any) -> None:
    deltalake.write_deltalake(table, table.to_pyarrow_table().slice(0, 0), mode="overwrite", predicate="partition = 1")


@pytest.mark.parametrize("change", [delete_all, merge, optimize, overwrite_part])
def test_operator_changes_are_not_rollback(cluster: MemoryCluster, delta: Table, change: Callable[[Any], None]) -> None:
    load_twice(cluster, delta)
    change(open_delta(delta))
    assert again(delta).rollback() is None


def test_table_overwritten_by_an_old_version_is_refused(cluster: MemoryCluster, delta: Table) -> None:
    first = load_twice(cluster, delta)
    old = deltalake.DeltaTable(delta.location, version=first).to_pyarrow_table()
    deltalake.write_deltalake(delta.location, old, mode="overwrite")
    with pytest.raises(RolledBackError, match=r"version 3 \(WRITE\) replaced all .* up to version 2"):
        read(cluster, delta)


def test_accepted_restore_is_accepted_once(cluster: MemoryCluster, delta: Table) -> None:
    open_delta_restored(delta, load_twice(cluster, delta))
    for _ in range(2):  # with nothing new, and with a row
        plan = read(cluster, delta, "skip").plan
        commit(again(delta), plan, write_files(cluster, again(delta), plan, "again"), "again")
        assert again(delta).rollback() is None
        add_row(cluster)
    assert rows(delta) == [one for one in topic_rows(cluster) if one not in ((0, 50), (0, 52))]
    open_delta_restored(delta, 1)
    with pytest.raises(RolledBackError):
        read(cluster, delta)


def test_log_without_the_commits_of_a_restore_is_refused(cluster: MemoryCluster, delta: Table) -> None:
    open_delta_restored(delta, load_twice(cluster, delta))
    open_delta(delta).create_checkpoint()
    (Path(delta.location) / "_delta_log" / f"{3:020}.json").unlink()
    with pytest.raises(RolledBackError, match=r"its log lacks version 3, .*newest load \(version 2\) is unknown"):
        read(cluster, delta)


def test_delta_log_that_lost_its_end_loads_again(cluster: MemoryCluster, delta: Table) -> None:
    load_twice(cluster, delta)
    (Path(delta.location) / "_delta_log" / f"{2:020}.json").unlink()
    assert load(cluster, again(delta)) == 2
    assert rows(delta) == topic_rows(cluster)


def test_files_of_loads_without_their_offsets_are_refused(cluster: MemoryCluster, tmp_path: Path) -> None:
    """As in a clone, and in a directory of Parquet files that was converted to a Delta table."""
    load(cluster, open_table(tmp_path / "table", format="parquet"))
    deltalake.convert_to_deltalake(str(tmp_path / "table"))
    table = open_table(tmp_path / "table")
    assert table.format == "delta"
    with pytest.raises(
        RolledBackError, match=r"contains files of loads .* not their offsets, .* second time"
    ) as refused:
        read(cluster, table, "skip")
    assert "--on-rollback" not in str(refused.value)


def test_copied_table_takes_loads_of_its_own(cluster: MemoryCluster, delta: Table, tmp_path: Path) -> None:
    load_twice(cluster, delta)
    shutil.copytree(delta.location, tmp_path / "copy")
    copy = open_table(tmp_path / "copy")
    add_row(cluster)
    for table in (delta, copy):
        load(cluster, again(table))
        assert rows(table) == topic_rows(cluster)


def test_restored_dead_letters_are_refused(cluster: MemoryCluster, delta: Table) -> None:
    load_twice(cluster, delta)
    letters = delta.dead_letters()
    cluster.partitions[TOPIC, 0].append_times(1 << 60)
    load_with_letters(cluster, delta)
    open_delta_restored(letters, 0)
    with pytest.raises(RolledBackError, match="_dead_letters: version 2"):
        read(cluster, delta)


def load_with_letters(cluster: MemoryCluster, table: Table) -> None:
    from ottla.pipeline.load.driver import _commit, rows_schema
    from ottla.pipeline.load.land import land_task

    reading = read(cluster, table)
    settings = reading.land_settings(table.ensure(rows_schema(table, None)), table.dead_letters().layout())
    landed = [land_task(number, task, settings) for number, task in enumerate(reading.plan.tasks)]
    _commit(reading.plan, again(table), landed, settings.load_id)


def test_status_of_a_restored_table_has_no_lag(cluster: MemoryCluster, delta: Table) -> None:
    open_delta_restored(delta, load_twice(cluster, delta))
    found = table_status(again(delta), cluster, "read_committed")  # type: ignore[arg-type]
    assert {(one.lag, one.note) for one in found.partitions} == {(None, "rows of loads are missing")}
    assert "rolled it back below its load of version 2" in (found.error or "")


def test_parquet_log_that_lost_its_end_loads_again(cluster: MemoryCluster, tmp_path: Path) -> None:
    table = open_table(tmp_path / "table", format="parquet")
    load_twice(cluster, table)
    (tmp_path / "table" / LOG_DIRECTORY / f"{2:020}.json").unlink()
    assert load(cluster, again(table)) == 2
    assert rows(table) == topic_rows(cluster)


@pytest.mark.promise("P3")
@pytest.mark.parametrize("lost", [0, 1])
def test_parquet_log_with_a_gap_is_refused(cluster: MemoryCluster, tmp_path: Path, lost: int) -> None:
    table = open_table(tmp_path / "table", format="parquet")
    load_twice(cluster, table)
    (tmp_path / "table" / LOG_DIRECTORY / f"{lost:020}.json").unlink()
    left = "creates the table again" if lost == 0 else "continues from version 0"
    remedy = (
        f"restore .*{lost:020}.json, or remove .*{lost + 1:020}.json and all later commits: the next load then {left}"
    )
    with pytest.raises(LoadRefusedError, match=f"lacks version {lost}, but has version {lost + 1}: {remedy}"):
        load(cluster, again(table))


def test_parquet_log_of_two_histories_is_refused(cluster: MemoryCluster, tmp_path: Path) -> None:
    table = open_table(tmp_path / "table", format="parquet")
    log = tmp_path / "table" / LOG_DIRECTORY
    load_twice(cluster, table)
    add_row(cluster)
    load(cluster, again(table))
    third = (log / f"{3:020}.json").read_bytes()
    for version in (2, 3):
        (log / f"{version:020}.json").unlink()
    load(cluster, again(table))
    (log / f"{3:020}.json").write_bytes(third)
    with pytest.raises(OperatorError, match="version 3 was not made on top of the version before it"):
        load(cluster, again(table))


class TestIceberg:
    @pytest.fixture
    def table(self, tmp_path: Path) -> Any:
        pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
        return open_table(tmp_path / "table", format="iceberg")

    def test_rolled_back_table_without_news_is_refused(self, cluster: MemoryCluster, table: Any) -> None:
        load(cluster, table)
        first = table._open().current_snapshot().snapshot_id
        add_row(cluster)
        load(cluster, table)
        newest = table._open().current_snapshot().snapshot_id
        table._open().manage_snapshots().rollback_to_snapshot(first).commit()
        with pytest.raises(RolledBackError, match=f"rolled back below its newest load.*set its .* to {newest}"):
            read(cluster, table)

    def test_rollback_outlives_the_expiry_of_snapshots(self, cluster: MemoryCluster, table: Any) -> None:
        load(cluster, table)
        first = table._open().current_snapshot().snapshot_id
        add_row(cluster)
        load(cluster, table)
        newest = table._open().current_snapshot().snapshot_id
        table._open().manage_snapshots().rollback_to_snapshot(first).commit()
        table._open().maintenance.expire_snapshots().by_id(newest).commit()
        with pytest.raises(RolledBackError, match="rolled back below its newest load"):
            read(cluster, table)

    def test_rollback_of_compaction_only_is_accepted(self, cluster: MemoryCluster, table: Any) -> None:
        load_twice(cluster, table)
        loaded = table._open().current_snapshot().snapshot_id
        table.compact(1 << 30, "compaction", lambda: None)
        assert table._open().current_snapshot().snapshot_id != loaded
        table._open().manage_snapshots().rollback_to_snapshot(loaded).commit()
        assert table.rollback() is None
        add_row(cluster)
        load(cluster, table)
        assert rows(table) == topic_rows(cluster)

    def test_older_registered_metadata_loads_again(self, cluster: MemoryCluster, table: Any) -> None:
        """Properties are reverted with the snapshots."""
        load(cluster, table)
        older = table._open().metadata_location
        add_row(cluster)
        load(cluster, table)
        catalog = table._open_catalog()
        catalog.drop_table("ottla.records")
        catalog.register_table("ottla.records", older)
        load(cluster, table)
        assert rows(table) == topic_rows(cluster)
