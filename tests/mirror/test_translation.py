"""Translation of group offsets to the target."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.mirror import copying, translation
from ottla.mirror.copying import PartitionCopy
from ottla.mirror.progress import Journal, Progress, Run, map_record, progress_record
from ottla.mirror.routes import Route
from ottla.mirror.translation import RouteMap, maps_of_topic, translate
from ottla.record.batch import iter_batches
from ottla.record.builder import RecordData

from .test_copying import ROUTE, fetched, logs


def in_step(*transactions: tuple[int, list[Run]], complete_from: int = 0) -> RouteMap:
    made = RouteMap(complete_from, 4, in_step=True)
    for first, runs in transactions:
        made.add(first, runs)
    return made


MAP = in_step((0, [Run(1, 0, 10, 100, 10)]), (10, [Run(1, 14, 20, 111, 6)]), (20, []))


@pytest.mark.parametrize(
    ("offset", "wanted"),
    [(0, 100), (7, 107), (9, 109), (10, 111), (12, 111), (14, 111), (19, 116), (99, 117)],
)
def test_an_offset_becomes_that_of_the_record_that_is_read_next(offset: int, wanted: int) -> None:
    assert MAP.translated(offset, 1) == wanted
    assert translate({("t", 1): offset}, {ROUTE: MAP}).offsets == {("t", 1): wanted}
    assert MAP.translated(offset, 0) is None


def test_merged_partitions_resume_at_smallest_offset_or_start() -> None:
    maps = {}
    for index, base in enumerate((100, 50)):
        made = RouteMap(0, 2, in_step=False)
        made.add(0, [Run(0, 0, 9, base, 4), Run(1, 2, 8, base, 3)])
        made.add(10, [Run(0, 10, 19, base + 20, 5)])
        maps[Route("A", "t", index, "u")] = made
    assert translate({("t", 0): 12, ("t", 1): 12}, maps).offsets == {("u", 0): 70, ("u", 1): 53}
    assert translate({("t", 0): 12}, maps).offsets == {("u", 0): 50, ("u", 1): 50}
    in_other_order = dict(reversed(maps.items()))
    assert translate({("t", 0): 12, ("t", 1): 12}, in_other_order).offsets == {("u", 0): 70, ("u", 1): 53}
    assert translate({("other", 0): 12}, maps) == ({}, frozenset())


def test_merged_maps_are_complete_or_empty() -> None:
    """For merged partitions with several mirrors: records of a partition without a map may come first."""
    kept = Progress(20, bytes(16), bytes(16), False, frozenset(), 0)
    routes = [Route("A", "t", index, "u") for index in range(2)]
    journal = Journal()

    def note(*records: RecordData) -> None:
        for record in records:
            journal.replay(0, record.key, record.value)

    note(progress_record(routes[0], kept, 1), map_record(routes[0], 0, (Run(0, 0, 20, 100, 20),), 1))
    assert maps_of_topic(journal, routes[0], 2, 1) == {}
    for unlike in (
        kept._replace(in_step=True),
        kept._replace(mapped_from=None),
        kept._replace(target_topic_id=bytes(range(16))),
    ):
        note(progress_record(routes[1], unlike, 1))
        assert maps_of_topic(journal, routes[0], 2, 1) == {}
    note(progress_record(routes[1], kept, 1), map_record(routes[1], 0, (Run(0, 0, 9, 50, 9),), 1))
    maps = maps_of_topic(journal, routes[0], 2, 1)
    assert translate({("t", 0): 20, ("t", 1): 4}, maps).offsets == {("u", 0): 54}
    assert translate({("t", 0): 20, ("t", 1): 9}, maps).offsets == {("u", 0): 59}


def test_merged_partition_without_offset_waits_for_its_start() -> None:
    """The group reads such a partition from the start, so its first records must not be skipped."""
    maps = {}
    for index, complete_from in enumerate((0, 10)):
        made = RouteMap(complete_from, 1, in_step=False)
        made.add(10, [Run(0, 10, 19, 50 + 20 * index, 9)])
        maps[Route("A", "t", index, "u")] = made
    assert translate({("t", 0): 12}, maps) == ({}, frozenset({"t"}))
    assert translate({("t", 0): 12, ("t", 1): 10}, maps).offsets == {("u", 0): 52}


@pytest.mark.parametrize("dense", [True, False])
def test_offsets_before_stored_runs_are_not_translated(dense: bool) -> None:
    made = RouteMap(30, 2, in_step=dense)
    made.add(30, [Run(1, 30, 40, 5, 10)])
    assert translate({("t", 1): 29}, {ROUTE: made}) == ({}, frozenset({"t"}))
    assert translate({("t", 1): 30}, {ROUTE: made}).offsets == {("t", 1): 5}


def test_runs_that_no_group_needs_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation, "KEPT_TRANSACTIONS", 10)
    made = in_step(*((n * 10, [Run(1, n * 10, n * 10 + 9, n * 11, 9)]) for n in range(100)))
    assert made.forget(490) == []
    assert made.forget(505) == [n * 10 for n in range(50)]
    assert (made.complete_from, made.translated(505, 1)) == (499, 555)
    assert made.forget(10_000) == []
    monkeypatch.setattr(translation, "FORGOTTEN_TOGETHER", 1)
    assert made.forget(10_000)[-1] == 890
    assert made.translated(10_000, 1) == 99 * 11 + 9
    monkeypatch.setattr(translation, "MAX_TRANSACTIONS", 5)
    made.forget(0)
    assert made.complete_from == 949


@pytest.mark.promise("M2")
@given(log=logs(), cuts=st.lists(st.integers(1, 4), max_size=12), limit=st.sampled_from([copying.MAX_RUNS, 1]))
def test_every_offset_of_a_log_finds_its_record(log, cuts, limit) -> None:
    """With equal partition counts; with too many runs the result may be earlier."""
    content, aborted, _ = log
    batches = list(iter_batches(content))
    copy, kept, end = PartitionCopy(ROUTE, 0, 4, in_step=True), in_step(), 1000
    target: dict[int, bytes | None] = {}
    number = 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(copying, "MAX_RUNS", limit)
        while copy.position < batches[-1].next_offset:
            rest = [batch for batch in batches if batch.next_offset > copy.position]
            some = rest[: cuts[number]] if number < len(cuts) else rest
            listed = tuple((producer, first) for producer, first, last in aborted if last >= copy.position)
            step = copy.take(fetched(*(batch.to_bytes() for batch in some), aborted=listed))
            bases = []
            for write in step.writes:
                bases.append(end)
                target |= {end + n: record.value for n, record in enumerate(write.batch.records())}
                end += write.batch.records_count
            if step.writes:
                kept.add(step.first_offset, step.runs(bases))
                end += 1  # the marker of the transaction
            copy.committed(step)
            number += 1
    visible = set(target.values())  # every value is there once
    source = {
        record.offset: record.value
        for batch in batches
        if not batch.is_control
        for record in batch.records()
        if record.value in visible
    }
    for offset in range(batches[-1].next_offset + 1):
        left = {value for at, value in source.items() if at >= offset}
        there = kept.translated(offset, 1)
        read = {value for at, value in target.items() if there is not None and at >= there}
        assert left == read if limit > 1 else left <= read
