"""Selection of segments by retention, and state of readers and offsets afterwards."""

from __future__ import annotations

import errno

import pytest

from ottla.storage.directory.directory_retention import SEGMENTS_A_STEP, producer_expiration_steps
from ottla.storage.files.checkpoints import read_offsets
from ottla.storage.files.log_config import LogConfig

from .maintenance import run_retention, write_checkpoints

HOUR = 3_600_000


@pytest.fixture
def make(fakes, disk, clock):
    """A log of five segments of two batches each, one hour apart."""

    def build(**config):
        options = {"segment_bytes": 210, "retention_ms": -1, **config}
        manager = fakes.open_manager(disk, clock, config=LogConfig(**options))
        log = manager.create_log("t", 0, bytes(16))
        for _ in range(10):
            batch = fakes.make_batch(clock.now_ms)
            log.append_as_leader(batch, 0, len(batch), 0)
            clock.now_ms += HOUR
        assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]
        return manager, log

    return build


def bases(log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_by_time(make, clock, disk):
    manager, log = make(retention_ms=5 * HOUR + 60_000, file_delete_delay_ms=1000)
    # It is hour 10; the newest records of the segments are of the hours 1, 3, 5, 7, 9.
    assert run_retention(manager) == 2
    assert bases(log) == [4, 6, 8]
    assert log.log_start_offset == 4
    assert log.log_end_offset == 10
    assert disk.exists("/data/t-0/00000000000000000000.log.deleted")
    clock.now_ms += 1001
    run_retention(manager)
    assert not any(".deleted" in name for name in disk.listdir("/data/t-0"))


def test_active_segment_expires_with_all_others(make, clock, fakes):
    manager, log = make(retention_ms=5 * HOUR)
    clock.now_ms += 100 * HOUR
    assert run_retention(manager) == 5
    assert bases(log) == [10]
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    batch = fakes.make_batch(clock.now_ms)
    assert log.append_as_leader(batch, 0, len(batch), 0).base_offset == 10
    manager.shutdown()


def test_by_size(make):
    manager, log = make()
    sizes = [segment.data.size_bytes for segment in log.segments]
    log.config = LogConfig(segment_bytes=210, retention_ms=-1, retention_bytes=sum(sizes[2:]) + 1)
    assert run_retention(manager) == 1
    assert bases(log) == [2, 4, 6, 8]
    log.config = LogConfig(segment_bytes=210, retention_ms=-1, retention_bytes=sum(sizes[2:]))
    assert run_retention(manager) == 1
    assert bases(log) == [4, 6, 8]


def test_segments_below_start_offset_are_deleted_by_any_policy(make):
    manager, log = make(cleanup_policy=frozenset({"compact"}), retention_ms=1)
    assert run_retention(manager) == 0
    log.delete_records(5)
    assert run_retention(manager) == 2
    assert bases(log) == [4, 6, 8]
    assert log.log_start_offset == 5


def test_never_above_the_high_watermark(make, clock):
    manager, log = make(retention_ms=1)
    clock.now_ms += 100 * HOUR
    log.offsets.high_watermark = 5
    assert run_retention(manager) == 2
    assert bases(log) == [4, 6, 8]


def test_records_without_timestamps_age_by_the_file(fakes, disk, clock):
    from ottla.record.builder import RecordData, build_batch

    config = LogConfig(retention_ms=HOUR, segment_bytes=100)
    manager = fakes.open_manager(disk, clock, config=config)
    log = manager.create_log("t", 0, bytes(16))
    for _ in range(3):
        batch = build_batch([RecordData(-1, None, b"x" * 20)])
        log.append_as_leader(batch, 0, len(batch), 0)
    assert run_retention(manager) == 0
    clock.now_ms += HOUR + 1
    assert run_retention(manager) == 3


def test_the_start_offset_survives_every_stop(make, fakes, disk, clock):
    manager, log = make()
    log.delete_records(5)
    write_checkpoints(manager)
    assert read_offsets(disk, "/data/log-start-offset-checkpoint") == {("t", 0): 5}
    disk.locked.clear()
    manager = fakes.open_manager(disk, clock)
    assert manager.get_log("t", 0).log_start_offset == 5
    manager.shutdown()
    manager = fakes.open_manager(disk, clock)
    assert manager.get_log("t", 0).log_start_offset == 5


def test_snapshots_are_deleted_with_segments_except_newest(fakes, disk, clock):
    config = LogConfig(segment_bytes=210, retention_ms=HOUR, file_delete_delay_ms=0)
    manager = fakes.open_manager(disk, clock, config=config)
    log = manager.create_log("t", 0, bytes(16))
    for sequence in range(10):
        batch = fakes.make_batch(clock.now_ms, producer_id=1, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(batch, 0, len(batch), 0)
    assert [name for name in disk.listdir("/data/t-0") if name.endswith(".snapshot")] == [
        f"{offset:020d}.snapshot" for offset in (2, 4, 6, 8)
    ]
    clock.now_ms += 2 * HOUR
    run_retention(manager)
    assert [name for name in disk.listdir("/data/t-0") if name.endswith(".snapshot")] == [f"{10:020d}.snapshot"]


def test_idle_producers_expire(fakes, disk, clock):
    manager = fakes.open_manager(disk, clock, producer_expiration_ms=HOUR)
    log = manager.create_log("t", 0, bytes(16))
    batch = fakes.make_batch(clock.now_ms, producer_id=1, producer_epoch=0, base_sequence=0)
    log.append_as_leader(batch, 0, len(batch), 0)
    clock.now_ms += HOUR - 1
    assert list(producer_expiration_steps([log], clock.now_ms)) == [0]
    clock.now_ms += 1
    run_retention(manager)
    assert len(log.producers) == 1
    assert list(producer_expiration_steps([log], clock.now_ms)) == [1]
    assert len(log.producers) == 0


def test_thousands_of_segments_are_deleted_in_short_steps(fakes, disk, clock):
    manager = fakes.open_manager(disk, clock, config=LogConfig(segment_bytes=100, retention_ms=HOUR))
    log = manager.create_log("t", 0, bytes(16))
    for _ in range(SEGMENTS_A_STEP * 3 + 5):
        batch = fakes.make_batch(clock.now_ms)
        log.append_as_leader(batch, 0, len(batch), 0)
    assert len(log.segments) == SEGMENTS_A_STEP * 3 + 5
    clock.now_ms += 2 * HOUR
    assert list(manager.retention_steps()) == [SEGMENTS_A_STEP] * 3 + [5]
    assert log.log_start_offset == log.log_end_offset


def test_failure_of_one_log_does_not_stop_retention(fakes, disk, clock):
    manager = fakes.open_manager(disk, clock, config=LogConfig(segment_bytes=100, retention_ms=HOUR))
    logs = [manager.create_log(topic, 0, bytes(16)) for topic in ("bad", "good")]
    for log in logs:
        for _ in range(3):
            batch = fakes.make_batch(clock.now_ms)
            log.append_as_leader(batch, 0, len(batch), 0)
    clock.now_ms += 2 * HOUR
    disk.fault = lambda action, path: OSError(errno.EIO, action) if "bad-0" in path and action == "rename" else None
    assert list(manager.retention_steps()) == [0, 3]
    assert [log.log_start_offset for log in logs] == [0, 3]


def test_log_deleted_between_steps_is_skipped(fakes, disk, clock):
    manager = fakes.open_manager(disk, clock, config=LogConfig(segment_bytes=100, retention_ms=HOUR))
    log = manager.create_log("t", 0, bytes(16))
    for _ in range(SEGMENTS_A_STEP * 2):
        batch = fakes.make_batch(clock.now_ms)
        log.append_as_leader(batch, 0, len(batch), 0)
    clock.now_ms += 2 * HOUR
    steps = manager.retention_steps()
    assert next(steps) == SEGMENTS_A_STEP
    manager.delete_log("t", 0)
    assert list(steps) == []
    assert len(log.segments) == SEGMENTS_A_STEP


def test_segment_with_future_timestamp_is_logged_once(fakes, disk, clock, caplog):
    config = LogConfig(segment_bytes=100, retention_ms=HOUR, message_timestamp_after_max_ms=2000 * HOUR)
    manager = fakes.open_manager(disk, clock, config=config)
    log = manager.create_log("t", 0, bytes(16))
    for ahead in (1000 * HOUR, 0, 0):
        batch = fakes.make_batch(clock.now_ms + ahead)
        log.append_as_leader(batch, 0, len(batch), 0)
    clock.now_ms += 2 * HOUR
    for _ in range(3):
        assert run_retention(manager) == 0
    logged = [record.getMessage() for record in caplog.records if "ahead of the clock" in record.getMessage()]
    assert len(logged) == 1
    assert "00000000000000000000.log" in logged[0]
    clock.now_ms += 1000 * HOUR
    assert run_retention(manager) == 3
