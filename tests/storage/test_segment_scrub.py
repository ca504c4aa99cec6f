"""Damage detection in a segment: the batch of every flipped bit is in a reported range.

Segments here have batches of three records and a known next base offset, as on a broker.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.common.kafka.topic_partition import TopicPartition
from ottla.record.builder import RecordData, build_batch
from ottla.storage.files.damage import Damage
from ottla.storage.repair.segment_scrub import MAX_DAMAGES, IndexCheck, SegmentFacts, SegmentScrub

TIME = 1_700_000_000_000
PARTITION: TopicPartition = ("t", 0)
BASE = 300


def batch(number: int, leader_epoch: int = 4) -> bytes:
    first = BASE + 3 * number
    records = [RecordData(TIME + first + i, b"key", b"value %d" % i) for i in range(3)]
    return bytes(build_batch(records, base_offset=first, leader_epoch=leader_epoch))


class Bytes:
    """A file."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, length: int, position: int) -> bytes:
        return self.data[position : position + length]


def scrub(
    data: bytes, *, batches: int, epochs: Sequence[tuple[int, int]] = ((4, 0),), piece: int = 1 << 20
) -> list[Damage]:
    facts = SegmentFacts(BASE, BASE + 3 * batches, len(data), epochs)
    found = SegmentScrub(Bytes(data), facts, IndexCheck((), (), lambda problem: None))
    while not found.is_done:
        found.run(piece)
    return found.damages(PARTITION)


def flipped(data: bytes, position: int, bit: int = 7) -> bytes:
    spoiled = bytearray(data)
    spoiled[position] ^= 1 << bit
    return bytes(spoiled)


@pytest.mark.promise("D12")
@pytest.mark.parametrize("bit", range(8))
def test_batch_of_any_flipped_bit_is_reported(bit: int) -> None:
    whole = [batch(number) for number in range(4)]
    data = b"".join(whole)
    size = len(whole[0])
    assert scrub(data, batches=4) == []
    for position in range(len(data)):
        spoiled_first = BASE + 3 * (position // size)
        found = scrub(flipped(data, position, bit), batches=4)
        assert any(
            damage.first_offset <= spoiled_first and spoiled_first + 2 <= damage.last_offset for damage in found
        ), (position, found)
        assert all(
            BASE <= damage.first_offset <= damage.last_offset < BASE + 12 and damage.segment == BASE for damage in found
        ), position


def test_neighbours_of_batch_with_wrong_crc_are_trusted() -> None:
    data = b"".join(batch(number) for number in range(4))
    size = len(batch(0))
    (found,) = scrub(flipped(data, size + 70), batches=4)
    assert (found.partition, found.first_offset, found.last_offset) == (PARTITION, BASE + 3, BASE + 5)
    assert found.reason == f"the CRC of the batch at offset {BASE + 3} does not match"


@pytest.mark.parametrize("lost", [8, 16])
def test_lost_framing_damages_rest_of_segment(lost: int) -> None:
    """By a length, and by a magic."""
    data = b"".join(batch(number) for number in range(4))
    found = scrub(flipped(data, len(batch(0)) + lost), batches=4)
    assert [(damage.first_offset, damage.last_offset) for damage in found] == [(BASE + 3, BASE + 11)]


def test_missing_tail_is_damage_to_segment_end() -> None:
    data = b"".join(batch(number) for number in range(4))
    (found,) = scrub(data[:-1], batches=4)
    assert (found.first_offset, found.last_offset) == (BASE + 9, BASE + 11)
    assert "cut short" in found.reason


def test_contradicting_offsets_make_both_batches_suspect() -> None:
    """If the offset of a batch is too high, only the next one reveals it."""
    data = b"".join(batch(number) for number in range(20))
    (found,) = scrub(flipped(data, len(batch(0)) + 7, 4), batches=20)
    assert (found.first_offset, found.last_offset) == (BASE + 3, BASE + 8)


def test_leader_epoch_is_compared_with_epochs_of_log() -> None:
    data = batch(0, 4) + batch(1, 6) + batch(2, 7)
    assert scrub(data, batches=3, epochs=((4, 0), (6, BASE + 3), (7, BASE + 6))) == []
    (found,) = scrub(data, batches=3, epochs=((4, 0), (7, BASE + 6)))
    assert "leader epoch 6" in found.reason
    (found,) = scrub(data, batches=3, epochs=((4, 0), (6, BASE + 3)))
    assert "leader epoch 7" in found.reason


def test_pieces_of_any_size_find_the_same() -> None:
    data = flipped(b"".join(batch(number) for number in range(40)), 30 * len(batch(0)) + 70)
    whole = scrub(data, batches=40)
    assert whole
    assert all(scrub(data, batches=40, piece=piece) == whole for piece in (1, 1000, 5000))


def test_many_ranges_become_one() -> None:
    """Every second batch is damaged."""
    data = bytearray(b"".join(batch(number) for number in range(100)))
    size = len(batch(0))
    for number in range(0, 100, 2):
        data[number * size + 70] ^= 1
    found = scrub(bytes(data), batches=100)
    assert len(found) == MAX_DAMAGES
    assert found[0].last_offset == BASE + 2
    assert found[-1].last_offset >= BASE + 3 * 98 + 2


def test_batch_larger_than_chunk_is_checked_in_pieces() -> None:
    large = bytes(build_batch([RecordData(TIME, None, bytes(3 << 20))], base_offset=BASE, leader_epoch=4))
    facts = SegmentFacts(BASE, BASE + 1, len(large), ())
    for data, count in ((large, 0), (flipped(large, 2 << 20), 1)):
        found = SegmentScrub(Bytes(data), facts, IndexCheck((), (), lambda problem: None))
        found.run(1)
        found.run(1)
        assert found.is_done
        assert len(found.damages(PARTITION)) == count


def test_indexes_are_compared_with_batches() -> None:
    data = b"".join(batch(number) for number in range(4))
    size = len(batch(0))
    facts = SegmentFacts(BASE, BASE + 12, len(data))

    def problems(offsets: list[tuple[int, int]], times: list[tuple[int, int]]) -> list[str]:
        found: list[str] = []
        check = SegmentScrub(Bytes(data), facts, IndexCheck(offsets, times, found.append))
        check.run(len(data) * 100)
        check.run(1)
        assert check.is_done
        return found

    second, last = BASE + 5, BASE + 11
    assert problems([(second, size), (last, 3 * size)], [(TIME + second, second), (TIME + last, last)]) == []
    assert problems([(second, size + 1)], []) == [f"index entry {second} -> {size + 1}: the batch there ends at None"]
    assert len(problems([(second + 1, size)], [])) == 1
    assert len(problems([(second, size), (second, size)], [])) == 1, "the second does not rise"
    assert len(problems([(last, 100 * size)], [(TIME, last + 100)])) == 2, "beyond the end"
    assert len(problems([], [(TIME, second)])) == 1
