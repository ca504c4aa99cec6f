"""Replacement segments from another replica's batches: only intact, ordered and whole batches are written."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.storage.compaction.sources import Source
from ottla.storage.files.epochs import LeaderEpochCache
from ottla.storage.repair.replacement import Replacement

PATH = "/data/t-0"
SOURCES = [Source(0, 10, 0, 0, 0), Source(10, 20, 0, 0, 0)]


@pytest.fixture
def replacement(fakes):
    def make(*, gaps_allowed=False) -> Replacement:
        disk = fakes.Disk(fakes.Clock())
        disk.makedirs(PATH)
        return Replacement(disk, PATH, SOURCES, (), index_interval_bytes=4096, gaps_allowed=gaps_allowed)

    return make


@pytest.fixture
def batch(fakes):
    def make(first, count=5, leader_epoch=1) -> bytes:
        return bytes(fakes.make_batch(1000, count, base_offset=first, leader_epoch=leader_epoch))

    return make


def refused(replacement, data) -> None:
    with pytest.raises(KafkaError) as error:
        replacement.write(data)
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE


def test_each_segment_has_its_base_offset_and_its_batches(replacement, batch):
    made = replacement()
    made.write(batch(0) + batch(5) + batch(10, leader_epoch=3)[:30])
    assert made.next_offset == 10, "an incomplete batch is ignored"
    made.write(batch(10, leader_epoch=3) + batch(15, leader_epoch=3) + batch(20))
    assert made.next_offset == 20
    assert made.epochs == [(1, 0), (3, 10)]
    group = made.complete()
    assert (group.sources, group.outputs) == (SOURCES, [0, 10])
    assert group.output_bytes == 4 * len(batch(0))


def test_segment_without_batches_is_empty(replacement):
    assert replacement().complete().outputs == [0, 10]


def test_batch_damaged_in_transit_is_rejected(replacement, batch):
    data = bytearray(batch(0))
    data[-1] ^= 1
    refused(replacement(), bytes(data))


def test_batch_outside_segment_range_is_rejected(replacement, batch):
    made = replacement()
    made.write(batch(0))
    refused(made, batch(4))
    refused(replacement(), batch(8))


def test_a_gap_is_refused_but_in_a_compacted_log(replacement, batch):
    made = replacement()
    made.write(
        batch(3),
    )
    refused(made, batch(10))
    made = replacement(gaps_allowed=True)
    made.write(batch(0) + batch(12))
    assert made.complete().outputs == [0, 10]


@pytest.mark.parametrize(
    ("before", "start", "end", "entries", "after"),
    [
        ([(1, 0), (3, 10)], 0, 10, [(1, 0), (2, 5)], [(1, 0), (2, 5), (3, 10)]),
        ([(1, 0), (99, 5)], 4, 20, [(1, 4), (2, 12)], [(1, 0), (2, 12)]),
        ([(1, 0), (99, 3)], 5, 20, [(1, 5)], [(1, 0)]),
        ([(1, 0), (3, 10)], 5, 10, [], [(1, 0), (3, 10)]),
    ],
)
def test_epochs_of_a_range_are_those_of_its_batches(before, start, end, entries, after):
    epochs = LeaderEpochCache(before)
    epochs.replace(start, end, entries)
    assert epochs.entries() == after
    assert epochs.dirty
