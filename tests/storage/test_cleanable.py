"""Cleanable range of a log, due passes, and the checkpoint of cleaned offsets at a start."""

from __future__ import annotations

import errno
import logging

import pytest

from ottla.record.control import end_transaction_marker
from ottla.storage.directory.cleanable import cleanable_range, first_dirty_offset, roll_overdue, sources_before
from ottla.storage.files.checkpoints import NO_GAPS_ABOVE, format_offsets, read_offsets
from ottla.storage.files.cleaner_checkpoint import CleanedOffsets, CleanerCheckpoint
from ottla.storage.files.log_config import LogConfig

from .maintenance import write_checkpoints

HOUR = 3_600_000
CONFIG = LogConfig(segment_bytes=210, retention_ms=-1, cleanup_policy=frozenset({"compact"}))
CHECKPOINT = "/data/cleaner-offset-checkpoint"


@pytest.fixture
def manager(fakes, disk, clock):
    return fakes.open_manager(disk, clock, config=CONFIG)


@pytest.fixture
def log(fakes, manager, clock):
    """Five segments of two batches, an hour from batch to batch; all except the last segment are durable."""
    log = manager.create_log("t", 0, bytes(16))
    for _ in range(10):
        batch = fakes.make_batch(clock.now_ms)
        log.append_as_leader(batch, 0, len(batch), 0)
        clock.now_ms += HOUR
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]
    log.flush()
    return log


def end_of_range(log, now_ms, first_dirty=0) -> int:
    return cleanable_range(log, first_dirty, now_ms).end_offset


def test_all_inactive_segments_are_cleanable(log, clock):
    found = cleanable_range(log, 0, clock.now_ms)
    sizes = [segment.data.size_bytes for segment in log.segments]
    assert found.dirty_ratio == 1
    assert found.is_due(0.5)
    assert found == (0, 8, 0, sum(sizes[:4]), 0, "")


def test_cleaned_range_is_not_dirty(log, clock):
    sizes = [segment.data.size_bytes for segment in log.segments]
    found = cleanable_range(log, 6, clock.now_ms)
    assert (found.end_offset, found.clean_bytes, found.cleanable_bytes) == (8, sum(sizes[:3]), sizes[3])
    assert found.dirty_ratio == 0.25
    assert found.is_due(0.2)
    assert not found.is_due(0.25), "as in Apache Kafka the ratio has to be passed"
    assert not cleanable_range(log, 8, clock.now_ms).is_due(0)


def test_a_segment_waits_for_the_high_watermark(log, clock):
    log.offsets.begin_high_watermark(5)
    assert end_of_range(log, clock.now_ms) == 4
    assert cleanable_range(log, 0, clock.now_ms).held_by == "the last stable offset"
    log.offsets.high_watermark = 6
    assert end_of_range(log, clock.now_ms) == 6


def append_transactional(fakes, log, clock):
    batch = fakes.make_batch(
        clock.now_ms,
        base_offset=log.log_end_offset,
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    log.append_as_follower(batch, 0, len(batch))


def abort(log, clock):
    marker = end_transaction_marker(
        commit=False,
        timestamp_ms=clock.now_ms,
        producer_id=9,
        producer_epoch=0,
        coordinator_epoch=0,
        base_offset=log.log_end_offset,
        leader_epoch=0,
    )
    log.append_as_follower(marker, 0, len(marker))


def test_a_segment_waits_for_transactions_that_are_open(fakes, log, clock):
    append_transactional(fakes, log, clock)
    log.roll()
    log.flush()
    assert end_of_range(log, clock.now_ms) == 10
    abort(log, clock)
    assert end_of_range(log, clock.now_ms) == log.active_segment.base_offset == 11


def test_log_is_not_cleaned_while_abort_is_only_in_memory(fakes, log, clock, disk):
    append_transactional(fakes, log, clock)
    disk.fault = lambda action, path: OSError(errno.ENOSPC, "full") if path.endswith(".txnindex") else None
    abort(log, clock)
    assert end_of_range(log, clock.now_ms) == 0
    found = cleanable_range(log, 0, clock.now_ms)
    assert not found.is_due(0)
    assert found.held_by == "room for an index of aborted transactions"
    disk.fault = lambda action, path: None
    log.roll()
    log.flush()
    assert end_of_range(log, clock.now_ms) == 12


def test_a_segment_waits_until_it_is_durable(fakes, manager, clock):
    log = manager.create_log("t", 0, bytes(16))
    for _ in range(5):
        batch = fakes.make_batch(clock.now_ms)
        log.append_as_leader(batch, 0, len(batch), 0)
    assert len(log.segments) == 3
    assert end_of_range(log, clock.now_ms) == 0
    assert cleanable_range(log, 0, clock.now_ms).held_by == "a flush"
    log.flush()
    assert end_of_range(log, clock.now_ms) == 4


def test_segment_waits_for_min_compaction_lag(log, clock):
    # It is hour 10; the newest records of the segments are of the hours 1, 3, 5, 7, 9.
    log.config = CONFIG._replace(min_compaction_lag_ms=5 * HOUR)
    assert end_of_range(log, clock.now_ms) == 6
    assert cleanable_range(log, 0, clock.now_ms).held_by == "min.compaction.lag.ms"
    assert end_of_range(log, clock.now_ms - 1) == 4
    assert end_of_range(log, clock.now_ms, first_dirty=5) == 6
    assert end_of_range(log, clock.now_ms + 10 * HOUR) == 8


def test_overdue_record_makes_pass_due_below_ratio(log, clock):
    log.config = CONFIG._replace(max_compaction_lag_ms=4 * HOUR)
    found = cleanable_range(log, 6, clock.now_ms)  # its first record is of hour 6
    assert found.overdue_ms == 0
    assert not found.is_due(1.0)
    found = cleanable_range(log, 6, clock.now_ms + 1)
    assert found.overdue_ms == 1
    assert found.is_due(1.0)


def test_active_segment_rolls_when_first_record_is_overdue(fakes, log, clock):
    log.config = CONFIG._replace(max_compaction_lag_ms=4 * HOUR)
    assert not roll_overdue(log, clock.now_ms + 2 * HOUR)  # its first record is of hour 8
    assert roll_overdue(log, clock.now_ms + 2 * HOUR + 1)
    assert log.active_segment.base_offset == 10
    assert not roll_overdue(log, clock.now_ms + 20 * HOUR), "an empty one has nothing to wait for"
    log.flush()
    assert cleanable_range(log, 8, clock.now_ms + 2 * HOUR + 1).is_due(1.0)


@pytest.mark.parametrize(("policy", "segment_count"), [("compact", 2), ("delete", 1)])
def test_append_rolls_segment_after_max_compaction_lag(fakes, manager, clock, policy, segment_count):
    config = CONFIG._replace(max_compaction_lag_ms=HOUR, cleanup_policy=frozenset({policy}))
    log = manager.create_log("t", 0, bytes(16), config)
    for _ in range(2):
        batch = fakes.make_batch(clock.now_ms)
        log.append_as_leader(batch, 0, len(batch), 0)
        clock.now_ms += HOUR + 1
    assert len(log.segments) == segment_count


def test_without_a_checkpoint_all_is_dirty(log):
    log.delete_records(3)
    assert first_dirty_offset(log, None) == 3
    assert first_dirty_offset(log, 4) == 4


def test_checkpoint_behind_log_end_is_ignored(log, caplog):
    assert first_dirty_offset(log, 10) == 10
    assert not caplog.records
    assert first_dirty_offset(log, 11) == 0
    assert "t-0 was cleaned up to offset 11 but ends at 10" in caplog.text


@pytest.mark.parametrize(("policy", "warnings"), [({"compact"}, 1), ({"compact", "delete"}, 0)])
def test_a_checkpoint_before_the_start_is_raised_to_it(log, caplog, policy, warnings):
    log.config = CONFIG._replace(cleanup_policy=frozenset(policy))
    log.delete_records(5)
    with caplog.at_level(logging.WARNING):
        assert first_dirty_offset(log, 4) == 5
    assert len(caplog.records) == warnings


def test_sources_are_the_segments_before_the_end(log, disk):
    sources, later = sources_before(log, 6)
    assert [(source.base_offset, source.next_base_offset) for source in sources] == [(0, 2), (2, 4), (4, 6)]
    assert [source.size_bytes for source in sources] == [segment.data.size_bytes for segment in log.segments[:3]]
    assert {source.largest_index_bytes for source in sources} == {12}, "an entry of the time index"
    assert later == [6, 8]


def due(checkpoint: CleanerCheckpoint) -> CleanedOffsets:
    found = checkpoint.due()
    assert found is not None
    return found


class TestCheckpoint:
    def test_is_kafkas_file(self, disk, manager):
        checkpoint = CleanerCheckpoint(disk, CHECKPOINT)
        checkpoint.put(("t", 0), 8)
        checkpoint.put(("a", 11), 5)
        checkpoint.write(due(checkpoint))
        assert disk.read_bytes(CHECKPOINT) == format_offsets({("a", 11): 5, ("t", 0): 8})
        assert checkpoint.due() is None
        again = CleanerCheckpoint(disk, CHECKPOINT)
        again.read()
        assert again.get(("a", 11)) == 5
        assert again.get(("a", 12)) is None

    def test_an_older_content_that_comes_late_changes_nothing(self, disk, manager):
        checkpoint = CleanerCheckpoint(disk, CHECKPOINT)
        checkpoint.put(("t", 0), 1)
        older = due(checkpoint)
        checkpoint.put(("t", 0), 2)
        checkpoint.write(due(checkpoint))
        checkpoint.write(older)
        assert disk.read_bytes(CHECKPOINT) == format_offsets({("t", 0): 2})

    def test_a_failed_write_stays_due(self, disk, manager):
        checkpoint = CleanerCheckpoint(disk, CHECKPOINT)
        checkpoint.put(("t", 0), 1)
        disk.fault = lambda action, path: OSError(errno.ENOSPC, "full")
        with pytest.raises(OSError, match="full"):
            checkpoint.write(due(checkpoint))
        disk.fault = lambda action, path: None
        assert due(checkpoint).offsets == {("t", 0): 1}

    def test_damaged_cleaner_checkpoint_is_ignored(self, disk, manager, caplog):
        disk.write_bytes(CHECKPOINT, b"0\n1\nt 0 x\n")
        checkpoint = CleanerCheckpoint(disk, CHECKPOINT)
        checkpoint.read()
        assert checkpoint.get(("t", 0)) is None
        assert CHECKPOINT in caplog.text

    def test_truncation_lowers_and_deletion_removes_entry(self, manager, log):
        checkpoint = manager.cleaner_checkpoint
        checkpoint.put(("t", 0), 8)
        log.truncate_to(9)
        assert checkpoint.get(("t", 0)) == 8
        log.truncate_to(5)
        assert checkpoint.get(("t", 0)) == 5
        manager.delete_log("t", 0)
        assert checkpoint.get(("t", 0)) is None


POINTS = "/data/recovery-point-offset-checkpoint"
MARK = ":ottla:no-gaps-above 0 0"


class TestMissingOffsets:
    """A start from segments at 0, 2, 6 and 8, since the one at 4 is lost."""

    def start(self, fakes, disk, clock, points: list[str], config: LogConfig = CONFIG):
        for suffix in (".log", ".index", ".timeindex"):
            disk.unlink(f"/data/t-0/{4:020d}{suffix}")
        disk.write_bytes(POINTS, "\n".join(["0", str(len(points)), *points, ""]).encode())
        disk.locked.clear()
        return fakes.open_manager(disk, clock, config=config)

    @pytest.mark.parametrize(
        ("points", "has_epochs", "end_offset"),
        [
            ([MARK, "t 0 5"], True, 4),  # the end of a segment was lost
            ([MARK, "t 0 6"], True, 10),  # it was cleaned
            (["t 0 5"], True, 10),  # Apache Kafka's cleaner goes beyond its recovery points on disk
            ([MARK], True, 10),  # the log was copied here
            ([MARK], False, 4),  # or it is new and was never flushed
            ([], False, 10),
        ],
    )
    def test_gaps_above_recovery_point_are_losses(self, fakes, log, disk, clock, points, has_epochs, end_offset):
        if not has_epochs:
            disk.unlink("/data/t-0/leader-epoch-checkpoint")
        manager = self.start(fakes, disk, clock, points)
        assert manager.get_log("t", 0).log_end_offset == end_offset

    def test_gap_after_change_to_delete_policy_loses_nothing(self, fakes, log, disk, clock):
        """The cleaner checkpoint shows that the topic was compacted before."""
        disk.write_bytes(CHECKPOINT, format_offsets({("t", 0): 8}))
        config = CONFIG._replace(cleanup_policy=frozenset({"delete"}))
        manager = self.start(fakes, disk, clock, ["t 0 5"], config)
        assert manager.get_log("t", 0).log_end_offset == 10

    def test_mark_is_set_once_gaps_are_below_recovery_points(self, fakes, log, disk, clock):
        manager = self.start(fakes, disk, clock, ["t 0 5"])
        write_checkpoints(manager)
        assert read_offsets(disk, POINTS) == {("t", 0): 5}
        manager.get_log("t", 0).flush()
        write_checkpoints(manager)
        assert read_offsets(disk, POINTS) == {NO_GAPS_ABOVE: 0, ("t", 0): 10}

    def test_recovery_point_precedes_new_gap(self, fakes, log, manager, disk, clock):
        directory = manager.directories[0]
        older = directory.checkpoints.recovery_points_due()
        assert manager.before_gaps(("t", 1), 8) is None
        manager.before_gaps(("t", 0), 8)()
        assert read_offsets(disk, POINTS) == {NO_GAPS_ABOVE: 0, ("t", 0): 10}
        assert manager.before_gaps(("t", 0), 10) is None
        batch = fakes.make_batch(clock.now_ms)
        log.append_as_leader(batch, 0, len(batch), 0)
        manager.before_gaps(("t", 0), 11)()
        assert read_offsets(disk, POINTS) == {("t", 0): 10}, "the mark can't be there until the flush"
        assert not directory.checkpoints.write_off_loop(older), "content older than the file is ignored"

    def test_new_log_gets_recovery_point_entry_soon(self, manager, log):
        directory = manager.directories[0]
        assert ("t", 0) in directory.checkpoints.points_of_new_logs_due().offsets
        assert directory.checkpoints.points_of_new_logs_due() is None


def test_a_follower_rolls_at_its_end_and_not_at_the_next_batch(fakes, log, clock):
    """Otherwise offsets that its leader had compacted away would look like the lost end of a segment."""
    batch = bytearray(fakes.make_batch(clock.now_ms))
    for offset, base_offset in ((100, 10), (1 << 32, 1 << 32)):  # too far for a segment's relative offsets
        batch[:8] = offset.to_bytes(8)
        log.writer.append_as_follower(batch, 0, len(batch))
        assert (log.active_segment.base_offset, log.log_end_offset) == (base_offset, offset + 1)


@pytest.mark.parametrize(("entry", "end_offset"), [(b"0\n1\nt 0 0\n", 10), (b"0\n0\n", 4)])
def test_gap_in_cleaned_log_is_not_a_lost_tail(fakes, log, disk, clock, entry, end_offset):
    """The topic is no longer compacted, and the end of its flushes is lost: so all segments are scanned."""
    log.flush()
    for suffix in (".log", ".index", ".timeindex"):
        disk.unlink(f"/data/t-0/{4:020d}{suffix}")
    disk.write_bytes(CHECKPOINT, entry)
    disk.write_bytes("/data/recovery-point-offset-checkpoint", b"0\n0\n")
    disk.locked.clear()
    manager = fakes.open_manager(disk, clock, config=CONFIG._replace(cleanup_policy=frozenset({"delete"})))
    assert manager.get_log("t", 0).log_end_offset == end_offset
