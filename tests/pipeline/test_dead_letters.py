"""Records that the table can't store go to the table of dead letters: each once, despite kills and races."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import OperatorError

deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

import pyarrow as pa  # noqa: E402

from ottla.pipeline.load import driver as loading  # noqa: E402
from ottla.pipeline.load.driver import rows_schema  # noqa: E402
from ottla.pipeline.load.land import LandSettings, WrittenRange, land_task  # noqa: E402
from ottla.pipeline.load.reading import find_reading  # noqa: E402
from ottla.pipeline.model.decode import MAX_TIMESTAMP_MS, SCHEMA  # noqa: E402
from ottla.pipeline.model.plan import LoadPlan, PlanSettings, make_plan  # noqa: E402
from ottla.pipeline.sinks.delta import DeltaTarget  # noqa: E402
from ottla.pipeline.sinks.table import CommitResult, StaleCommitError  # noqa: E402
from ottla.pipeline.sinks.writer import discard_load, new_load_id  # noqa: E402
from ottla.pipeline.transform.value_format import JsonFormat  # noqa: E402

from .memory_cluster import MemoryCluster  # noqa: E402

BAD = MAX_TIMESTAMP_MS + 1


@pytest.fixture
def cluster() -> MemoryCluster:
    """A cluster with bad records at offsets 1 and 3."""
    made = MemoryCluster()
    made.create("clicks", 1)
    made.partitions["clicks", 0].append_times(1, BAD, 2, BAD, 3)
    return made


@pytest.fixture
def target(tmp_path: Path) -> DeltaTarget:
    return DeltaTarget(tmp_path / "a table", ("topic",))


class Load:
    """One load step by step, as `load` runs it but without Spark."""

    def __init__(self, cluster: MemoryCluster, target: DeltaTarget, settings: PlanSettings | None = None) -> None:
        self.target = target
        self.plan: LoadPlan = make_plan(cluster, target, ["clicks"], settings or PlanSettings(), target.dead_letters())
        self.settings = LandSettings(
            cluster.open,
            target.ensure(SCHEMA),
            target.dead_letters().layout(),
            new_load_id(),
            letters_held=self.plan.letters.held,
        )

    def land(self) -> list[WrittenRange]:
        rows = [land_task(number, task, self.settings) for number, task in enumerate(self.plan.tasks)]
        assert not any(row.error for row in rows)
        return rows

    def run(self) -> list[WrittenRange]:
        rows = self.land()
        loading._commit(self.plan, self.target, rows, self.settings.load_id)
        return rows

    def die_between_the_commits(self) -> None:
        class Dead(DeltaTarget):
            def commit(self, *_: object, **__: object) -> CommitResult:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            loading._commit(self.plan, Dead(self.target.location), self.land(), self.settings.load_id)


def letters(target: DeltaTarget) -> list[int]:
    """Offsets of all dead letters, read by another library."""
    return sorted(deltalake.DeltaTable(target.dead_letters().location).to_pyarrow_table().column("offset").to_pylist())


def held(target: DeltaTarget) -> list[int]:
    return sorted(deltalake.DeltaTable(target.location).to_pyarrow_table().column("offset").to_pylist())


@pytest.mark.promise("P6")
def test_bad_records_are_there_and_nowhere_else(cluster: MemoryCluster, target: DeltaTarget) -> None:
    rows = Load(cluster, target).run()
    assert [(row.rows, row.dead_rows) for row in rows] == [(3, 2)]
    assert (held(target), letters(target)) == ([0, 2, 4], [1, 3])
    found = deltalake.DeltaTable(target.dead_letters().location).to_pyarrow_table().to_pylist()
    assert {row["reason"] for row in found} == {f"timestamp {BAD} is not within the years 1970 to 9999"}
    assert {(row["timestamp_ms"], row["value"]) for row in found} == {(BAD, b"timed")}
    assert Load(cluster, target).plan.is_empty
    cluster.partitions["clicks", 0].append_times(BAD, 4)
    Load(cluster, target).run()
    assert (held(target), letters(target)) == ([0, 2, 4, 6], [1, 3, 5])


def test_no_table_of_dead_letters_without_one(cluster: MemoryCluster, target: DeltaTarget) -> None:
    cluster.create("clicks", 1)
    cluster.partitions["clicks", 0].append_times(1, 2, -1)
    Load(cluster, target).run()
    assert held(target) == [0, 1, 2]
    assert not Path(target.dead_letters().location).exists()


def test_load_of_bad_records_only(cluster: MemoryCluster, target: DeltaTarget) -> None:
    cluster.create("clicks", 1)
    cluster.partitions["clicks", 0].append_times(BAD, BAD)
    Load(cluster, target).run()
    assert (held(target), letters(target)) == ([], [0, 1])
    assert Load(cluster, target).plan.is_empty


@pytest.mark.promise("P6")
def test_a_load_that_dies_between_the_commits(cluster: MemoryCluster, target: DeltaTarget) -> None:
    """Its letters are committed already; the next load only writes those after them."""
    Load(cluster, target).die_between_the_commits()
    assert (held(target), letters(target)) == ([], [1, 3])
    cluster.partitions["clicks", 0].append_times(BAD, 4)
    Load(cluster, target).run()
    assert (held(target), letters(target)) == ([0, 2, 4, 6], [1, 3, 5])


@pytest.mark.promise("P6")
def test_next_load_after_a_death_writes_letters_of_its_own(cluster: MemoryCluster, target: DeltaTarget) -> None:
    """It decodes differently: records that the dead load could decode are dead letters now, below its offset."""
    Load(cluster, target).die_between_the_commits()
    assert letters(target) == [1, 3]
    value_format = JsonFormat(pa.schema([("id", pa.int64())]))
    open_cluster: Any = cluster.open
    reading = find_reading(["clicks"], target, open_cluster, PlanSettings(), value_format)
    layout = target.ensure(rows_schema(target, reading.decoder))
    settings = reading.land_settings(layout, target.dead_letters().layout())
    rows = [land_task(number, task, settings) for number, task in enumerate(reading.plan.tasks)]
    loading._commit(reading.plan, target, rows, settings.load_id)
    assert (held(target), letters(target)) == ([], [0, 1, 2, 3, 4])
    assert Load(cluster, target).plan.is_empty


def test_a_load_that_loses_the_race_after_its_letters(cluster: MemoryCluster, target: DeltaTarget) -> None:
    """The winner has planned less and found none of them; the rest is still loaded, each record once."""
    cluster.create("clicks", 1)
    cluster.partitions["clicks", 0].append_times(1, 2)
    winner = Load(cluster, target)
    cluster.partitions["clicks", 0].append_times(BAD, 3, BAD)
    loser = Load(cluster, target)
    winner.run()
    with pytest.raises(StaleCommitError):
        loser.run()
    discard_load(
        target.layout().store, loser.settings.load_id, target.named_files() | target.dead_letters().named_files()
    )
    assert (held(target), letters(target)) == ([0, 1], [2, 4])
    Load(cluster, target).run()
    assert (held(target), letters(target)) == ([0, 1, 3], [2, 4])


def test_two_loads_with_the_same_letters(cluster: MemoryCluster, target: DeltaTarget) -> None:
    one, two = Load(cluster, target), Load(cluster, target)
    one.run()
    with pytest.raises(StaleCommitError):
        two.run()
    assert (held(target), letters(target)) == ([0, 2, 4], [1, 3])


@pytest.mark.parametrize("died", [False, True])
def test_letters_after_truncation_follow_older_ones(cluster: MemoryCluster, target: DeltaTarget, died: bool) -> None:
    """The offsets of the old letters belong to other records now, which are bad as well."""
    if died:
        Load(cluster, target).die_between_the_commits()
    else:
        Load(cluster, target).run()
    log = cluster.partitions["clicks", 0]
    log.batches, log.end = [], 0
    log.elect_leader(0)
    log.append_times(4, BAD, 5, 6, 7, BAD)
    Load(cluster, target, PlanSettings(on_data_loss="skip")).run()
    assert letters(target) == [1, 1, 3, 5]
    assert held(target) == sorted([0, 2, 3, 4] + ([] if died else [0, 2, 4]))
    assert Load(cluster, target).plan.is_empty


def test_a_vacuum_of_the_table_leaves_dead_letters(cluster: MemoryCluster, target: DeltaTarget) -> None:
    Load(cluster, target).run()
    table = deltalake.DeltaTable(target.location)
    table.vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)
    assert letters(target) == [1, 3]


def test_letters_that_can_not_be_kept_stop_the_load(cluster: MemoryCluster, target: DeltaTarget) -> None:
    """The load is then not committed: a record that is in neither table would be lost."""
    load = Load(cluster, target)
    rows = load.land()
    lost = [replace(row, dead_files=row.dead_files.replace(load.settings.load_id, "gone")) for row in rows]
    with pytest.raises(OperatorError, match="nothing was committed: 1 files"):
        loading._commit(load.plan, target, lost, load.settings.load_id)
    assert held(target) == []
