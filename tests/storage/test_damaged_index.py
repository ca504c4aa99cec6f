"""Indexes that change under a log in use: they are rebuilt, and no record of the log is lost."""

from __future__ import annotations

import random

import pytest

from ottla.storage.files.log_config import LogConfig
from ottla.storage.segment.outlines import UNLOADED

CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=200)
BATCHES = 60


def zeros(data: bytes) -> bytes:
    return bytes(len(data))


def ones(data: bytes) -> bytes:
    """Negative positions, offsets and timestamps."""
    return b"\xff" * len(data)


def noise(data: bytes) -> bytes:
    return random.Random(7).randbytes(len(data))


def shorter(data: bytes) -> bytes:
    return data[: len(data) // 3]


def empty(data: bytes) -> bytes:
    return b""


def longer(data: bytes) -> bytes:
    return data + b"\x7f" * 240


def shuffled(data: bytes) -> bytes:
    """Well-formed entries that name other batches."""
    half = len(data) // 48 * 24
    return data[half:] + data[:half]


DAMAGES = [zeros, ones, noise, shorter, empty, longer, shuffled, None]


@pytest.fixture
def log(fakes, disk, clock):
    log = fakes.open_manager(disk, clock, config=CONFIG).create_log("t", 0, bytes(16))
    for number in range(BATCHES):
        append(fakes, log, clock, number)
    log.flush()
    assert len(log.segments) > 2
    return log


def append(fakes, log, clock, number: int) -> None:
    batch = fakes.make_batch(clock.now_ms + number * 10, 2, size=100)
    log.append_as_leader(batch, 0, len(batch), 0)


def damage(disk, log, how, *, evict: bool) -> None:
    """Change every index file of the log; with `evict` each is opened again at its next use."""
    for segment in log.segments:
        segment.indexes.write()
        for index in (segment.indexes.offset, segment.indexes.time):
            if how is None:
                disk.unlink(index.path)
            else:
                disk.write_bytes(index.path, how(disk.read_bytes(index.path)))
            if evict:
                index.descriptor.release_file()


def offset_of(log, offset: int, max_offset: int) -> int:
    result = log.read(offset, 1, max_offset=max_offset)
    base_offset = int.from_bytes(result.records.read_all()[:8], "big")
    result.records.release()
    return base_offset


@pytest.mark.parametrize("evict", [False, True])
@pytest.mark.parametrize("how", DAMAGES)
def test_reads_and_lookups_survive_damaged_index(fakes, disk, log, clock, how, evict):
    damage(disk, log, how, evict=evict)
    for offset in range(0, 2 * BATCHES, 3):
        assert offset_of(log, offset, 2 * BATCHES) == offset // 2 * 2
    damage(disk, log, how, evict=evict)
    for number in range(0, BATCHES, 5):
        found = log.lookup_timestamp(clock.now_ms + number * 10)
        assert found is not None
        assert found[0] == 2 * number
    damage(disk, log, how, evict=evict)
    assert log.max_timestamp()[1] == max(segment.indexes.max_timestamp for segment in log.segments)
    assert not log.failed


@pytest.mark.parametrize("evict", [False, True])
@pytest.mark.parametrize("how", DAMAGES)
def test_writes_survive_damaged_index(fakes, disk, log, clock, how, evict):
    for number in range(BATCHES, 2 * BATCHES):
        damage(disk, log, how, evict=evict)
        append(fakes, log, clock, number)
    damage(disk, log, how, evict=evict)
    log.flush()
    log.roll()
    damage(disk, log, how, evict=evict)
    log.truncate_to(2 * BATCHES + 7)
    assert log.log_end_offset == 2 * BATCHES + 6
    damage(disk, log, how, evict=evict)
    for offset in range(0, log.log_end_offset, 3):
        assert offset_of(log, offset, log.log_end_offset) == offset // 2 * 2
    log.close()
    assert not log.failed


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_time_index_does_not_expire_segment(fakes, disk, log, clock, how):
    log.config = LogConfig(segment_bytes=4096, index_interval_bytes=200, retention_ms=1_000_000)
    expected = [segment.indexes.max_timestamp for segment in log.segments]
    damage(disk, log, how, evict=True)
    for segment in log.segments:
        segment.indexes.max_timestamp = UNLOADED  # as after a start
    assert log.delete_old_segments(clock.now_ms + 500_000) == 0
    for segment in log.segments:
        segment.search.load_timestamps()
    newest = [segment.indexes.max_timestamp for segment in log.segments]
    assert newest == expected


@pytest.mark.parametrize("base_offset", [b"\x7f" * 8, b"\xff" * 8, b"\x00\x00\x00\x00\x80\x00\x00\x00"])
def test_batch_outside_index_range_gets_no_entry(fakes, disk, log, base_offset):
    """No CRC covers a base offset, so damage may turn it into any number."""
    segment = log.segments[1]
    position = segment.search.find_offset(segment.base_offset + 12)[0]
    path = segment.data.descriptor.path
    stored = disk.read_bytes(path)
    disk.write_bytes(path, stored[:position] + base_offset + stored[position + 8 :])
    segment.data.descriptor.release_file()
    damage(disk, log, None, evict=True)
    segment.indexes.max_timestamp = UNLOADED
    for offset in range(segment.base_offset, segment.base_offset + 12, 2):
        assert offset_of(log, offset, 2 * BATCHES) == offset
    segment.become_inactive()
    log.close()
    assert not log.failed
