"""A log that mixes message formats v0, v1 and v2: positions, timestamps, followers and producers."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.record.compression import GZIP, NONE
from ottla.record.legacy.message_set import Message, append_message_set
from ottla.storage.files.log_config import LogConfig

T = 1_500_000_000_000
CONFIG = LogConfig(index_interval_bytes=100)


@pytest.fixture
def opened(fakes):
    """Returns a function that opens a log over the given bytes after a kill."""

    def open_over(data):
        clock = fakes.Clock()
        disk = fakes.Disk(clock)
        manager = fakes.open_manager(disk, clock, config=CONFIG)
        log = manager.create_log("t", 0, bytes(range(16)))
        disk.write_bytes(log.segments[-1].data.path, data)
        disk.locked.clear()
        return fakes.open_manager(disk, clock, config=CONFIG).get_log("t", 0)

    return open_over


def mixed(fakes):
    """v0 at 0 to 2, a wrapper of v0 with 3 to 5, v1 at 6 and 7, a wrapper of v1 with 8 to 11, a batch at 12 and 13."""
    out = bytearray()
    for magic, codec, offsets in (
        (0, NONE, range(3)),
        (0, GZIP, range(3, 6)),
        (1, NONE, (6, 7)),
        (1, GZIP, range(8, 12)),
    ):
        messages = [Message(offset, T + offset if magic else -1, b"k", b"v" * 40) for offset in offsets]
        append_message_set(out, messages, magic, codec)
    batch = fakes.make_batch(T + 100, 2, 20, producer_id=3, producer_epoch=0, base_sequence=0)
    batch[:8] = (12).to_bytes(8, "big")
    return bytes(out + batch)


LASTS = [0, 1, 2, 5, 6, 7, 11, 13]


def test_every_offset_has_its_place(opened, fakes):
    log = opened(mixed(fakes))
    assert log.log_end_offset == 14
    segment = log.segments[0]
    for offset in range(14):
        assert segment.search.find_offset(offset)[2] == next(last for last in LASTS if last >= offset)
    segment.indexes.rebuild()
    assert [segment.search.find_offset(offset)[2] for offset in (0, 4, 11, 12)] == [0, 5, 11, 13]


def test_times_are_found_within_sets_of_v1(opened, fakes):
    log = opened(mixed(fakes))
    for offset in range(6, 12):
        assert log.reader.lookup_timestamp(T + offset)[:2] == (offset, T + offset)
    assert log.reader.lookup_timestamp(0)[:2] == (6, T + 6)
    assert log.reader.lookup_timestamp(T + 12)[0] in (12, 13)
    assert log.reader.lookup_timestamp(T + 10_000) is None


def test_largest_timestamp_may_be_in_a_message(opened):
    out = bytearray()
    append_message_set(out, [Message(0, T + 5, None, b"a"), Message(1, T + 9, None, b"b")], 1, GZIP)
    append_message_set(out, [Message(2, T, None, b"c")], 1, NONE)
    assert opened(bytes(out)).reader.max_timestamp()[:2] == (1, T + 9)


def test_a_follower_gets_all_of_it_byte_by_byte(opened, fakes):
    data = mixed(fakes)
    follower = opened(b"")
    half = follower.writer.append_as_follower(data, 0, len(data) - 1)
    assert (half.base_offset, half.last_offset) == (0, 11)
    at = follower.segments[0].data.size_bytes
    assert follower.writer.append_as_follower(data, at, len(data)).last_offset == 13

    assert follower.segments[0].data.descriptor.read(len(data), 0) == data
    assert follower.producers.get(3).last_sequence == 1
    torn = bytearray(data)
    torn[-1 - (len(data) - at) - 5] ^= 1
    with pytest.raises(KafkaError) as caught:
        opened(b"").writer.append_as_follower(torn, 0, len(torn))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_producers_behind_messages_are_loaded(opened, fakes):
    assert opened(mixed(fakes)).producers.get(3).last_sequence == 1
