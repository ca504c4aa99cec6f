"""Offsets of the batches in a read, from their headers."""

from __future__ import annotations

import pytest

from ottla.common.errors import KafkaError
from ottla.storage.files.log_config import LogConfig


@pytest.fixture
def log(fakes, disk, clock):
    """Four batches of three records each, in one segment."""
    created = fakes.open_manager(disk, clock, config=LogConfig()).create_log("t", 0, bytes(16))
    for _ in range(4):
        batch = fakes.make_batch(clock.time_ms(), 3)
        created.append_as_leader(batch, 0, len(batch), 0)
    return created


def extents(log, offset: int, max_bytes: int, end_offset: int = 100, max_batches: int = 100):
    found = log.read(offset, max_bytes, max_offset=12)
    try:
        return log.reader.extents(found, end_offset=end_offset, max_batches=max_batches)
    finally:
        found.records.release()


def test_extents_cover_whole_batches_only(log) -> None:
    found = log.read(0, 1 << 20, max_offset=12)
    size = found.length // 4
    found.records.release()
    rows = [(each.position, each.size, each.first_offset, each.last_offset) for each in extents(log, 0, 1 << 20)]
    assert rows == [(number * size, size, 3 * number, 3 * number + 2) for number in range(4)]
    assert [each.first_offset for each in extents(log, 4, 2 * size + 1)] == [3, 6]


def test_extents_end_at_their_limits(log) -> None:
    assert [each.first_offset for each in extents(log, 0, 1 << 20, end_offset=6)] == [0, 3]
    assert [each.first_offset for each in extents(log, 0, 1 << 20, max_batches=3)] == [0, 3, 6]


def test_extents_report_a_failing_disk(log, monkeypatch) -> None:
    found = log.read(0, 1 << 20, max_offset=12)
    descriptor = log.segments.active.data.descriptor

    def fail(length: int, position: int) -> bytes:
        raise OSError("broken")

    monkeypatch.setattr(type(descriptor), "read", lambda self, length, position: fail(length, position))
    with pytest.raises(KafkaError):
        log.reader.extents(found, end_offset=100, max_batches=100)
