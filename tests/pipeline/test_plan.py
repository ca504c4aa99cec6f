"""Ranges from committed offsets to the end, split by bytes; recreated topics and lost records are noticed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.wire.failure import TopicNotFound
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, FetchResult, OffsetInfo
from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import uuid_to_string
from ottla.pipeline.model.plan import (
    Boundary,
    DataLossError,
    KnownTopics,
    LoadPlan,
    OffsetRange,
    PlanSettings,
    app_id,
    epoch_app_id,
    make_plan,
    split,
)

from .memory_cluster import MemoryCluster, MemoryPartition


class Table:
    """Offsets of a table, without a table."""

    def __init__(self) -> None:
        self.offsets: dict[str, int] = {}
        self.topics: dict[str, str] = {}
        self.clusters: dict[str, str] = {}

    def committed_offsets(self, app_ids: Iterable[str]) -> dict[str, int | None]:
        return {name: self.offsets.get(name) for name in app_ids}

    def known_topics(self) -> KnownTopics:
        return KnownTopics(self.topics, self.clusters)

    def apply(self, plan: LoadPlan) -> None:
        assert {name: self.offsets.get(name) for name in plan.expected} == plan.expected
        self.offsets |= plan.following
        self.topics |= plan.topic_ids
        self.clusters |= dict.fromkeys(plan.topic_ids, plan.cluster_id)


def cluster_with(
    *counts: int, topic: str = "clicks", size: int = 20, cluster: MemoryCluster | None = None
) -> MemoryCluster:
    cluster = cluster or MemoryCluster()
    cluster.create(topic, len(counts))
    for index, count in enumerate(counts):
        for _ in range(count // 10):
            cluster.partitions[topic, index].append_values([b"x" * size] * 10)
    return cluster


SKIP = PlanSettings(on_data_loss="skip")


def bounds(plan: LoadPlan) -> list[tuple[int, int, int]]:
    return [(part.partition, part.start_offset, part.end_offset) for part in plan.ranges]


def test_first_load_then_empty_then_new_records() -> None:
    cluster, table = cluster_with(100, 0, 30), Table()
    plan = make_plan(cluster, table, ["clicks"], PlanSettings())
    assert bounds(plan) == [(0, 0, 100), (2, 0, 30)]
    assert set(plan.expected.values()) == {None}
    table.apply(plan)
    assert make_plan(cluster, table, ["clicks"], PlanSettings()).is_empty
    cluster.partitions["clicks", 1].append_values([b"new"] * 5)
    cluster.partitions["clicks", 2].append_values([b"new"] * 5)
    plan = make_plan(cluster, table, ["clicks"], PlanSettings())
    assert bounds(plan) == [(1, 0, 5), (2, 30, 35)]
    topic_id = uuid_to_string(cluster.topic_ids["clicks"])
    one, two = (app_id("default", topic_id, index) for index in (1, 2))
    assert plan.expected == {one: 0, epoch_app_id(one): 0, two: 30, epoch_app_id(two): 0}
    assert plan.following == {one: 5, epoch_app_id(one): 0, two: 35, epoch_app_id(two): 0}


def test_pipelines_do_not_share_offsets() -> None:
    cluster, table = cluster_with(10), Table()
    table.apply(make_plan(cluster, table, ["clicks"], PlanSettings(pipeline_id="one")))
    assert not make_plan(cluster, table, ["clicks"], PlanSettings(pipeline_id="two")).is_empty


LAST = 1_700_000_000_000
"""The time of offset 0 in `cluster_with`; the others follow at one millisecond each."""


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (Boundary(offset=50), Boundary(offset=49)),
        (Boundary(timestamp=LAST + 1), Boundary(timestamp=LAST)),
        (Boundary(timestamp=LATEST_TIMESTAMP), Boundary(timestamp=LAST)),
        (Boundary(timestamp=LAST), Boundary(timestamp=EARLIEST_TIMESTAMP)),
    ],
)
def test_an_end_before_the_start_is_refused(start: Boundary, end: Boundary) -> None:
    with pytest.raises(OperatorError, match="--to is before --from"):
        PlanSettings(start=start, end=end)


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", "\udcff", "x" * 201])
def test_invalid_pipeline_ids_are_refused(name: str) -> None:
    with pytest.raises(OperatorError, match=r"pipeline id .* must have 1 to 200 characters"):
        PlanSettings(pipeline_id=name)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (Boundary(timestamp=EARLIEST_TIMESTAMP), None, [(0, 0, 100), (1, 0, 50)]),
        (Boundary(offset=20), Boundary(offset=60), [(0, 20, 60), (1, 20, 50)]),
        (None, Boundary(offset=0), []),
        (Boundary(offset=50), Boundary(timestamp=LAST + 20), []),
        (Boundary(timestamp=LAST + 30), Boundary(timestamp=LAST + 61), [(0, 30, 60), (1, 30, 50)]),
        (Boundary(timestamp=LAST + 70), None, [(0, 70, 100)]),
        (Boundary(timestamp=LATEST_TIMESTAMP), None, []),
    ],
)
def test_the_first_start_and_an_end(
    start: Boundary | None, end: Boundary | None, expected: list[tuple[int, int, int]]
) -> None:
    cluster, table = cluster_with(100, 50), Table()
    plan = make_plan(cluster, table, ["clicks"], PlanSettings(start=start, end=end))
    assert bounds(plan) == expected
    table.apply(plan)
    begun = {part: begin for part, begin, _ in expected}
    plan = make_plan(cluster, table, ["clicks"], PlanSettings())
    for partition, count in ((0, 100), (1, 50)):
        rest = [(first, last) for part, first, last in bounds(plan) if part == partition]
        loaded = [(first, last) for part, first, last in expected if part == partition]
        if start is None:
            assert loaded + rest == [(0, count)]
        elif loaded:
            assert sum(last - first for first, last in loaded + rest) == count - begun[partition]


def test_start_at_latest_is_stored_without_records() -> None:
    cluster, table = cluster_with(10, 0), Table()
    table.apply(make_plan(cluster, table, ["clicks"], PlanSettings(start=Boundary(timestamp=LATEST_TIMESTAMP))))
    for index in range(2):
        cluster.partitions["clicks", index].append_values([b"new"] * 5)
    assert bounds(make_plan(cluster, table, ["clicks"], PlanSettings())) == [(0, 10, 15), (1, 0, 5)]


def test_from_is_refused_after_first_load_and_beyond_end() -> None:
    cluster, table = cluster_with(10), Table()
    with pytest.raises(OperatorError, match="offset 11 is beyond its end, offset 10"):
        make_plan(cluster, table, ["clicks"], PlanSettings(start=Boundary(offset=11)))
    table.apply(make_plan(cluster, table, ["clicks"], PlanSettings()))
    for start in (Boundary(offset=0), Boundary(offset=10)):
        with pytest.raises(OperatorError, match=r"'default' has loaded .* up to offset 10, .* the earlier records"):
            make_plan(cluster, table, ["clicks"], PlanSettings(start=start))
    assert bounds(make_plan(cluster, table, ["clicks"], PlanSettings("other", start=Boundary(offset=4)))) == [
        (0, 4, 10)
    ]


def test_start_below_log_start_offset_is_data_loss() -> None:
    cluster, table = cluster_with(100), Table()
    cluster.partitions["clicks", 0].log_start = 30
    with pytest.raises(DataLossError, match="offsets 20 to 29 were deleted"):
        make_plan(cluster, table, ["clicks"], PlanSettings(start=Boundary(offset=20)))


def test_end_below_loaded_offset_is_not_truncation() -> None:
    cluster, table = cluster_with(100), Table()
    table.apply(make_plan(cluster, table, ["clicks"], PlanSettings(end=Boundary(offset=60))))
    assert make_plan(cluster, table, ["clicks"], PlanSettings(end=Boundary(offset=40))).is_empty
    assert bounds(make_plan(cluster, table, ["clicks"], PlanSettings())) == [(0, 60, 100)]


def test_dead_letter_offsets_stay_ahead_of_a_shorter_load() -> None:
    """The load that wrote the letters lost its own commit; a later one with an earlier end must not repeat them."""
    cluster, letters = cluster_with(100), Table()
    letters.apply(make_plan(cluster, Table(), ["clicks"], PlanSettings()))
    plan = make_plan(cluster, Table(), ["clicks"], PlanSettings(end=Boundary(offset=60)), letters)
    name = app_id("default", uuid_to_string(cluster.topic_ids["clicks"]), 0)
    assert (plan.following[name], plan.letters.expected[name]) == (60, 100)
    assert plan.letters.held == {("clicks", 0): 100}
    assert plan.letters.following[name] == 100


def test_recreated_topic_loads_from_start_and_is_noted() -> None:
    cluster, table = cluster_with(50), Table()
    table.apply(make_plan(cluster, table, ["clicks"], PlanSettings()))
    cluster.create("clicks", 1)
    cluster.partitions["clicks", 0].append_values([b"other"] * 5)
    plan = make_plan(cluster, table, ["clicks"], PlanSettings())
    assert bounds(plan) == [(0, 0, 5)]
    assert "created again" in plan.notes[0]


def test_records_deleted_before_they_were_loaded() -> None:
    cluster, table = cluster_with(50), Table()
    table.apply(make_plan(cluster, table, ["clicks"], PlanSettings()))
    log = cluster.partitions["clicks", 0]
    log.append_values([b"a"] * 20)
    log.log_start = 60
    with pytest.raises(DataLossError, match=r"'clicks' partition 0: offsets 50 to 59 .*--on-data-loss skip"):
        make_plan(cluster, table, ["clicks"], PlanSettings())
    plan = make_plan(cluster, table, ["clicks"], PlanSettings(on_data_loss="skip"))
    assert bounds(plan) == [(0, 60, 70)]
    assert plan.skipped_offsets == 10
    assert "50 to 59" in plan.notes[0]


def test_fully_deleted_partition_moves_offset_once() -> None:
    cluster, table = cluster_with(50), Table()
    table.apply(make_plan(cluster, table, ["clicks"], PlanSettings()))
    log = cluster.partitions["clicks", 0]
    log.append_values([b"a"] * 20)
    log.log_start = log.end
    plan = make_plan(cluster, table, ["clicks"], PlanSettings(on_data_loss="skip"))
    assert not plan.tasks
    assert not plan.is_empty
    table.apply(plan)
    assert make_plan(cluster, table, ["clicks"], PlanSettings()).is_empty


@pytest.mark.parametrize("left", [0, 2])
def test_records_deleted_from_never_loaded_partition(left: int) -> None:
    """One partition was empty at the first load, one was added later."""
    cluster, table = cluster_with(10, 0), Table()
    table.apply(make_plan(cluster, table, ["clicks"], PlanSettings()))
    cluster.partitions["clicks", 2] = MemoryPartition()
    assert make_plan(cluster, table, ["clicks"], PlanSettings()).is_empty
    for index in (1, 2):
        log = cluster.partitions["clicks", index]
        log.append_values([b"new"] * 5)
        log.log_start = log.end - left
        with pytest.raises(DataLossError, match=rf"partition {index}: offsets 0 to {4 - left} .*--on-data-loss skip"):
            make_plan(cluster, table, ["clicks"], PlanSettings())
        plan = make_plan(cluster, table, ["clicks"], SKIP)
        assert bounds(plan) == ([(index, 3, 5)] if left else [])
        assert plan.skipped_offsets == 5 - left
        table.apply(plan)
        assert make_plan(cluster, table, ["clicks"], PlanSettings()).is_empty


def test_records_deleted_from_added_partition() -> None:
    """It was added after the last load, so its records from the first one on are due."""
    cluster, table = cluster_with(10), Table()
    table.apply(make_plan(cluster, table, ["clicks"], PlanSettings()))
    log = cluster.partitions["clicks", 1] = MemoryPartition()
    log.append_values([b"new"] * 5)
    log.log_start = 2
    with pytest.raises(DataLossError, match=r"partition 1: offsets 0 to 1 .*--on-data-loss skip"):
        make_plan(cluster, table, ["clicks"], PlanSettings())
    plan = make_plan(cluster, table, ["clicks"], SKIP)
    assert (bounds(plan), plan.skipped_offsets) == ([(1, 2, 5)], 2)


def test_records_deleted_while_sizes_are_asked_for() -> None:
    """The task that reads the deleted offsets reports the loss, or skips them as requested."""

    class Shrinking(MemoryCluster):
        def fetch(self, topic: str, partition: int, offset: int, **named: Any) -> FetchResult:
            self.partitions[topic, partition].log_start = 60
            return super().fetch(topic, partition, offset, **named)

    cluster = cluster_with(50_000, cluster=Shrinking())
    plan = make_plan(cluster, Table(), ["clicks"], PlanSettings())
    assert bounds(plan) == [(0, 0, 50_000)]
    assert plan.size_bytes > 0


def loaded_and_cut(at: int) -> tuple[MemoryCluster, Table]:
    """50 records are loaded, then a new leader has only the first `at` of them."""
    cluster, table = cluster_with(50), Table()
    table.apply(make_plan(cluster, table, ["clicks"], PlanSettings()))
    cluster.partitions["clicks", 0].elect_leader(at)
    return cluster, table


@pytest.mark.promise("P5")
@pytest.mark.parametrize("written", [0, 5, 10, 30])
def test_log_truncated_below_table_offset(written: int) -> None:
    """For any number of records after the truncation: the log may be as long as before."""
    cluster, table = loaded_and_cut(40)
    log = cluster.partitions["clicks", 0]
    if written:
        log.append_values([b"new"] * written)
    with pytest.raises(DataLossError, match=r"truncated to offset 40, .* up to 50: .*40 to 49 .*from offset 40 on"):
        make_plan(cluster, table, ["clicks"], PlanSettings())
    plan = make_plan(cluster, table, ["clicks"], SKIP)
    assert bounds(plan) == ([(0, 40, 40 + written)] if written else [])
    assert not plan.is_empty
    assert "truncated to offset 40" in plan.notes[0]
    table.apply(plan)
    assert make_plan(cluster, table, ["clicks"], PlanSettings()).is_empty
    log.append_values([b"later"] * 3)
    assert bounds(make_plan(cluster, table, ["clicks"], PlanSettings())) == [(0, 40 + written, 43 + written)]


def test_log_start_beyond_truncation_offset() -> None:
    cluster, table = loaded_and_cut(40)
    log = cluster.partitions["clicks", 0]
    log.append_values([b"new"] * 30)
    log.log_start = 60
    plan = make_plan(cluster, table, ["clicks"], SKIP)
    assert bounds(plan) == [(0, 60, 70)]
    assert plan.skipped_offsets == 20
    assert ["truncated to" in plan.notes[0], "40 to 59 were deleted" in plan.notes[1]] == [True, True]


def test_clean_elections_are_not_truncation() -> None:
    """Neither is an end that is not yet known again, or is lower under read_committed than the earlier read."""
    cluster, table = cluster_with(50), Table()
    table.apply(make_plan(cluster, table, ["clicks"], PlanSettings()))
    log = cluster.partitions["clicks", 0]
    for _ in range(3):
        log.elect_leader()
        assert make_plan(cluster, table, ["clicks"], PlanSettings()).is_empty
    log.append_values([b"new"] * 10)
    table.apply(make_plan(cluster, table, ["clicks"], PlanSettings()))
    log.elect_leader()
    log.elect_leader()
    stable = cluster.list_offsets

    def lower(*arguments: Any, **named: Any) -> dict[tuple[str, int], OffsetInfo]:
        return {key: found._replace(offset=min(found.offset, 55)) for key, found in stable(*arguments, **named).items()}

    cluster.list_offsets = lower  # type: ignore[method-assign]
    assert make_plan(cluster, table, ["clicks"], PlanSettings()).is_empty


def test_a_table_of_an_older_release_knows_no_epochs() -> None:
    """Only a shorter log can be recognized then; the next load stores the epoch."""
    cluster, table = loaded_and_cut(40)
    table.offsets = {name: offset for name, offset in table.offsets.items() if "leader-epoch" not in name}
    with pytest.raises(DataLossError, match="truncated to offset 40"):
        make_plan(cluster, table, ["clicks"], PlanSettings())
    cluster.partitions["clicks", 0].append_values([b"new"] * 20)
    table.apply(make_plan(cluster, table, ["clicks"], PlanSettings()))
    cluster.partitions["clicks", 0].elect_leader(40)
    with pytest.raises(DataLossError, match=r"truncated to offset 40, .* up to 60"):
        make_plan(cluster, table, ["clicks"], PlanSettings())


def test_decreasing_leader_epochs_are_refused() -> None:
    """The brokers were reverted to an old copy: the offset at which table and topic diverge is unknown."""
    cluster, table = loaded_and_cut(40)
    cluster.partitions["clicks", 0].append_values([b"new"] * 30)
    table.apply(make_plan(cluster, table, ["clicks"], SKIP))
    log = cluster.partitions["clicks", 0]
    log.newest_epoch, log.epochs = 0, [(0, 0)]
    for settings in (PlanSettings(), SKIP):
        with pytest.raises(DataLossError, match=r"up to leader epoch 1, .* newest is 0: .*another --pipeline-id"):
            make_plan(cluster, table, ["clicks"], settings)
    again = make_plan(cluster, table, ["clicks"], PlanSettings(pipeline_id="again"))
    assert bounds(again) == [(0, 0, 70)]


def test_retention_before_first_load_is_not_data_loss() -> None:
    cluster = cluster_with(50)
    cluster.partitions["clicks", 0].log_start = 20
    assert bounds(make_plan(cluster, Table(), ["clicks"], PlanSettings())) == [(0, 20, 50)]


def test_an_unknown_topic_and_bad_settings() -> None:
    with pytest.raises(TopicNotFound, match="'nothing'"):
        make_plan(MemoryCluster(), Table(), ["nothing"], PlanSettings())
    with pytest.raises(OperatorError, match="pipeline id"):
        PlanSettings(pipeline_id="a/b")


def test_tasks_follow_the_bytes_not_the_offsets() -> None:
    cluster = MemoryCluster()
    cluster.create("clicks", 1)
    log = cluster.partitions["clicks", 0]
    for number in range(200):
        log.append_values([b"x" * (20_000 if number < 50 else 100)] * 10)
    plan = make_plan(cluster, Table(), ["clicks"], PlanSettings(max_bytes_per_task=2_000_000))
    tasks = sorted(plan.tasks, key=lambda task: task.start_offset)
    assert 4 <= len(tasks) <= 12
    assert tasks[0].start_offset == 0
    assert tasks[-1].end_offset == 2_000
    assert all(one.end_offset == two.start_offset for one, two in itertools.pairwise(tasks))
    heavy = [task for task in tasks if task.end_offset <= 500]
    assert len(heavy) >= len(tasks) - 3
    assert 8_000_000 <= plan.size_bytes <= 14_000_000


def test_big_partition_is_split_for_idle_cores() -> None:
    cluster = cluster_with(2_000, size=10_000)
    assert len(make_plan(cluster, Table(), ["clicks"], PlanSettings(parallelism=1)).tasks) == 1
    assert len(make_plan(cluster, Table(), ["clicks"], PlanSettings(parallelism=4)).tasks) == 3


@pytest.mark.promise("P1")
@given(
    start=st.integers(0, 1 << 40),
    length=st.integers(1, 10_000),
    profile=st.lists(st.floats(0, 1e9), min_size=1, max_size=8),
    max_bytes=st.integers(1, 1 << 40),
)
def test_pieces_cover_the_range_exactly(start: int, length: int, profile: list[float], max_bytes: int) -> None:
    whole = OffsetRange("clicks", "id", 0, start, start + length, 0)
    pieces = split(whole, profile, max_bytes)
    assert pieces[0].start_offset == start
    assert pieces[-1].end_offset == start + length
    assert all(piece.offsets > 0 for piece in pieces)
    assert all(one.end_offset == two.start_offset for one, two in itertools.pairwise(pieces))
