"""Appends: accepted and rejected batches with their errors, and that a failing disk leaves no trace."""

from __future__ import annotations

import errno

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.record.batch import BatchView
from ottla.record.builder import RecordData, build_batch
from ottla.storage.files.log_config import LogConfig


@pytest.fixture
def open_log(fakes, disk, clock):
    def make(**config):
        manager = fakes.open_manager(disk, clock, config=LogConfig(**config))
        return manager.create_log("t", 0, bytes(16))

    return make


@pytest.fixture
def log(open_log):
    return open_log()


def append(log, batch: bytearray, epoch: int = 0, **options):
    return log.append_as_leader(batch, 0, len(batch), epoch, **options)


def refused(log, batch: bytearray, **options) -> ErrorCode:
    end = log.log_end_offset
    size = log.size_bytes
    with pytest.raises(KafkaError) as failure:
        append(log, batch, **options)
    assert (log.log_end_offset, log.size_bytes) == (end, size)
    return failure.value.code


def test_append_patches_only_offset_and_epoch(fakes, log, clock):
    for expected in (0, 3):
        batch = fakes.make_batch(clock.now_ms, 3, compression="zstd")
        before = bytes(batch)
        result = append(log, batch, epoch=7)
        assert (result.base_offset, result.last_offset) == (expected, expected + 2)
        view = BatchView(batch)
        assert view.base_offset == expected
        assert view.partition_leader_epoch == 7
        assert view.crc_matches()
        assert bytes(batch[16:]) == before[16:]
    assert log.leader_epoch == 7
    assert not result.duplicate
    assert result.log_append_time_ms == -1


def test_a_batch_inside_a_larger_buffer(fakes, log, clock):
    batch = fakes.make_batch(clock.now_ms, 2)
    buffer = bytearray(b"\xff" * 10) + batch + b"\xff" * 5
    result = log.append_as_leader(buffer, 10, 10 + len(batch), 0)
    assert result.last_offset == 1
    assert buffer[:10] == b"\xff" * 10
    assert fakes.read_log(log) == [(0, 1, bytes(batch[16:]))]


def test_buffer_is_resizable_after_append_and_rejection(fakes, log, clock):
    batch = fakes.make_batch(clock.now_ms)
    append(log, batch)
    batch.extend(b"more")
    refused(log, batch)
    batch.extend(b"more")


def test_refused_batches(fakes, log, clock):
    good = fakes.make_batch(clock.now_ms)
    flipped = bytearray(good)
    flipped[-1] ^= 1
    assert refused(log, flipped) == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, good + good) == ErrorCode.INVALID_RECORD
    assert refused(log, fakes.make_batch(clock.now_ms, is_control=True)) == ErrorCode.INVALID_RECORD
    assert refused(log, good[:40]) == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, bytearray()) == ErrorCode.CORRUPT_MESSAGE


def test_size_limits(fakes, open_log, clock):
    log = open_log(max_message_bytes=300, segment_bytes=200)
    assert refused(log, fakes.make_batch(clock.now_ms, size=400)) == ErrorCode.MESSAGE_TOO_LARGE
    assert refused(log, fakes.make_batch(clock.now_ms, size=200)) == ErrorCode.RECORD_LIST_TOO_LARGE
    append(log, fakes.make_batch(clock.now_ms, size=50))


def test_timestamp_bounds(fakes, open_log, clock):
    log = open_log(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    assert refused(log, fakes.make_batch(clock.now_ms + 501)) == ErrorCode.INVALID_TIMESTAMP
    assert refused(log, fakes.make_batch(clock.now_ms - 1001)) == ErrorCode.INVALID_TIMESTAMP
    append(log, fakes.make_batch(clock.now_ms + 500))
    append(log, fakes.make_batch(clock.now_ms - 1000))
    append(log, build_batch([RecordData(-1, None, b"no timestamp")]))


def test_log_append_time_replaces_the_producers(fakes, open_log, clock):
    log = open_log(message_timestamp_type="LogAppendTime")
    batch = fakes.make_batch(5, 2, compression="lz4")
    result = append(log, batch)
    assert result.log_append_time_ms == clock.now_ms
    view = BatchView(batch)
    assert view.crc_matches()
    assert [record.timestamp for record in view.records()] == [clock.now_ms] * 2
    assert log.max_timestamp() == (0, clock.now_ms, 0)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_compacted_topics_need_keys(fakes, open_log, clock, compression):
    log = open_log(cleanup_policy=frozenset({"compact"}))
    keyless = fakes.make_batch(clock.now_ms, 2, key=None, compression=compression)
    assert refused(log, keyless) == ErrorCode.INVALID_RECORD
    append(log, fakes.make_batch(clock.now_ms, 2, compression=compression))


def test_malformed_records_are_refused(fakes, log, clock):
    from ottla.record.batch import ATTRIBUTES_POSITION, CRC_POSITION

    crc32c = pytest.importorskip("crc32c").crc32c
    batch = fakes.make_batch(clock.now_ms)
    batch[61] ^= 0x02  # the length of the first record
    batch[CRC_POSITION : CRC_POSITION + 4] = crc32c(bytes(batch[ATTRIBUTES_POSITION:])).to_bytes(4, "big")
    assert refused(log, batch) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("wanted", "sent"), [("zstd", "none"), ("gzip", "lz4"), ("uncompressed", "snappy")])
def test_the_topics_codec(fakes, open_log, clock, wanted, sent):
    log = open_log(compression_type=wanted)
    batch = fakes.make_batch(clock.now_ms, 3, compression=sent, producer_id=4, producer_epoch=1, base_sequence=6)
    sent_records = list(BatchView(bytes(batch)).records())
    append(log, batch)
    result = log.read(0, 10_000, max_offset=3)
    stored = BatchView(result.records.read_all())
    result.records.release()
    assert stored.compression == ("none" if wanted == "uncompressed" else wanted)
    assert stored.crc_matches()
    assert (stored.producer_id, stored.producer_epoch, stored.base_sequence) == (4, 1, 6)
    assert list(stored.records()) == sent_records


def test_the_same_codec_keeps_the_bytes(fakes, open_log, clock):
    log = open_log(compression_type="lz4")
    batch = fakes.make_batch(clock.now_ms, 3, compression="lz4")
    append(log, batch)
    assert fakes.read_log(log) == [(0, 2, bytes(batch[16:]))]


def test_broker_batches_may_be_several_and_control(fakes, log, clock):
    control = fakes.make_batch(clock.now_ms, is_control=True)
    both = control + fakes.make_batch(clock.now_ms, 2)
    result = append(log, both, epoch=3, client=False)
    assert (result.base_offset, result.last_offset) == (0, 2)
    assert [batch[:2] for batch in fakes.read_log(log)] == [(0, 0), (1, 2)]


def test_flush_messages(fakes, open_log, clock):
    log = open_log(flush_messages=3)
    assert not append(log, fakes.make_batch(clock.now_ms, 2)).needs_flush
    assert append(log, fakes.make_batch(clock.now_ms, 2)).needs_flush
    log.flush()
    assert not append(log, fakes.make_batch(clock.now_ms, 2)).needs_flush


def test_rolling_by_size_time_and_index(fakes, open_log, clock):
    log = open_log(segment_bytes=1000, segment_ms=10_000, segment_index_bytes=24, index_interval_bytes=1)
    append(log, fakes.make_batch(clock.now_ms, size=400))
    append(log, fakes.make_batch(clock.now_ms, size=400))
    assert len(log.segments) == 1
    append(log, fakes.make_batch(clock.now_ms, size=400))
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    clock.now_ms += 10_001
    append(log, fakes.make_batch(clock.now_ms, size=1))
    assert log.segments[-1].base_offset == 3
    for _ in range(2):  # each adds an entry to the offset index; two are what segment.index.bytes allows
        append(log, fakes.make_batch(clock.now_ms, size=1))
    assert log.segments[-1].base_offset == 3
    append(log, fakes.make_batch(clock.now_ms, size=1))
    assert log.segments[-1].base_offset == 6


def test_time_based_roll_without_timestamps_counts_from_creation(open_log, clock):
    log = open_log(segment_ms=10_000)
    append(log, build_batch([RecordData(-1, None, b"x")]))
    clock.now_ms += 9_000
    append(log, build_batch([RecordData(-1, None, b"x")]))
    assert len(log.segments) == 1
    clock.now_ms += 1_001
    append(log, build_batch([RecordData(-1, None, b"x")]))
    assert len(log.segments) == 2


class TestFollower:
    def test_offsets_and_epochs_are_kept_and_a_cut_batch_is_left_out(self, fakes, log, clock):
        first = fakes.make_batch(clock.now_ms, 2, base_offset=0, leader_epoch=3)
        second = fakes.make_batch(clock.now_ms, 1, base_offset=5, leader_epoch=4)  # a gap of compaction
        data = first + second + second[:30]
        result = log.append_as_follower(data, 0, len(data))
        assert (result.base_offset, result.last_offset) == (0, 5)
        assert log.log_end_offset == 6
        assert log.epochs.entries() == [(3, 0), (4, 5)]
        assert [batch[:2] for batch in fakes.read_log(log)] == [(0, 1), (5, 5)]
        assert log.read(3, 1000, max_offset=6).offset == 3

    def test_offsets_never_go_back(self, fakes, log, clock):
        data = fakes.make_batch(clock.now_ms, 2, base_offset=0, leader_epoch=3)
        log.append_as_follower(data, 0, len(data))
        with pytest.raises(KafkaError) as failure:
            log.append_as_follower(data, 0, len(data))
        assert failure.value.code == ErrorCode.CORRUPT_MESSAGE
        assert log.log_end_offset == 2

    def test_a_damaged_batch_ends_the_append_after_the_good_ones(self, fakes, log, clock):
        good = fakes.make_batch(clock.now_ms, base_offset=0)
        bad = fakes.make_batch(clock.now_ms, base_offset=1)
        bad[-1] ^= 1
        data = good + bad
        with pytest.raises(KafkaError):
            log.append_as_follower(data, 0, len(data))
        assert log.log_end_offset == 1

    @pytest.mark.parametrize("offset", [2, 4, 9, 10])
    def test_truncation_within_gap_ends_at_existing_batch(self, fakes, log, clock, offset):
        """The batch behind the gap may have a wrong offset, and contain the missing records."""
        data = fakes.make_batch(clock.now_ms, 2, base_offset=0) + fakes.make_batch(clock.now_ms, 3, base_offset=9)
        log.append_as_follower(data, 0, len(data))
        assert log.truncate_to(offset)
        assert log.log_end_offset == 2

    @pytest.mark.parametrize(
        ("base_offset", "epoch", "policy", "gaps_allowed", "following", "taken"),
        [
            (2, 4, "delete", False, None, True),
            (2, 5, "delete", False, None, False),  # no leader epoch there yet
            (2, 2, "delete", False, None, False),  # the log has a later one
            (2, -1, "delete", False, None, True),  # none, as in old logs
            (3, 4, "delete", False, 4, False),
            (3, 4, "delete", True, None, False),
            (3, 4, "delete", True, 4, True),
            (3, 4, "delete", True, 3, False),  # one of them must be wrong
            (3, 4, "compact", False, None, True),
            (3, 4, "compact", False, 4, True),
            (3, 4, "compact", False, 3, False),
        ],
    )
    def test_unchecksummed_fields_are_validated(
        self, fakes, open_log, clock, base_offset, epoch, policy, gaps_allowed, following, taken
    ):
        log = open_log(cleanup_policy=frozenset({policy}))
        known = fakes.make_batch(clock.now_ms, 2, base_offset=0, leader_epoch=3)
        log.append_as_follower(known, 0, len(known))
        data = fakes.make_batch(clock.now_ms, base_offset=base_offset, leader_epoch=epoch)
        if following is not None:
            data += fakes.make_batch(clock.now_ms, base_offset=following, leader_epoch=4)[:20]
        if taken:
            log.writer.append_as_follower(data, 0, len(data), leader_epoch=4, gaps_allowed=gaps_allowed)
            assert log.log_end_offset == base_offset + 1
        else:
            with pytest.raises(KafkaError) as failure:
                log.writer.append_as_follower(data, 0, len(data), leader_epoch=4, gaps_allowed=gaps_allowed)
            assert failure.value.code == ErrorCode.CORRUPT_MESSAGE
            assert log.log_end_offset == 2


class TestProducers:
    def batch(self, fakes, clock, sequence, count=1, epoch=0):
        return fakes.make_batch(clock.now_ms, count, producer_id=9, producer_epoch=epoch, base_sequence=sequence)

    def test_any_first_sequence_then_no_gap_and_no_repetition(self, fakes, log, clock):
        append(log, self.batch(fakes, clock, 17, 3))
        assert refused(log, self.batch(fakes, clock, 21)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert refused(log, self.batch(fakes, clock, 18)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        append(log, self.batch(fakes, clock, 20))
        result = append(log, self.batch(fakes, clock, 17, 3))
        assert result.duplicate
        assert (result.base_offset, result.last_offset) == (0, 2)
        assert log.log_end_offset == 4

    @pytest.mark.promise("T11")
    def test_five_batches_are_remembered(self, fakes, log, clock):
        for sequence in range(6):
            append(log, self.batch(fakes, clock, sequence))
        again = append(log, self.batch(fakes, clock, 1))
        assert (again.duplicate, again.log_append_time_ms) == (True, -1)
        assert refused(log, self.batch(fakes, clock, 0)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_epochs_fence_and_begin_at_zero(self, fakes, log, clock):
        append(log, self.batch(fakes, clock, 0, epoch=2))
        assert refused(log, self.batch(fakes, clock, 1, epoch=1)) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert refused(log, self.batch(fakes, clock, 1, epoch=3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        append(log, self.batch(fakes, clock, 0, epoch=3))
        assert refused(log, self.batch(fakes, clock, 1, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_append_time_is_remembered_for_duplicates(self, fakes, disk, clock, open_log):
        """Also on a replica and after a restart, which read it from the batch."""
        log = open_log(message_timestamp_type="LogAppendTime")
        batch = fakes.make_batch(1000, producer_id=9, producer_epoch=0, base_sequence=0)
        append(log, bytearray(batch))
        appended_ms = clock.now_ms
        clock.now_ms += 5000
        again = append(log, bytearray(batch))
        assert (again.duplicate, again.log_append_time_ms) == (True, appended_ms)
        assert log.producers.get(9).last_timestamp == appended_ms
        disk.locked.clear()
        restarted = fakes.open_manager(disk, clock, config=log.config).get_log("t", 0)
        assert restarted.producers.get(9).batches == log.producers.get(9).batches

    def test_restarted_log_loads_no_snapshot_of_old_producers(self, fakes, log, clock):
        append(log, self.batch(fakes, clock, 0))
        log.roll()
        log.truncate_fully_and_start_at(0)
        for _ in range(2):
            append(log, fakes.make_batch(clock.now_ms))
        log.truncate_to(1)
        assert log.producers.get(9) is None

    def test_batch_of_other_length_is_not_a_duplicate(self, fakes, log, clock):
        append(log, self.batch(fakes, clock, 0, 2))
        append(log, self.batch(fakes, clock, 2))
        assert refused(log, self.batch(fakes, clock, 0, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert refused(log, self.batch(fakes, clock, 0, 4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert append(log, self.batch(fakes, clock, 0, 2)).duplicate

    def test_sequences_wrap_to_zero_behind_the_largest(self, fakes, log, clock):
        append(log, self.batch(fakes, clock, 2**31 - 1))
        append(log, self.batch(fakes, clock, 0))
        assert log.producers.get(9).last_sequence == 0

    def test_sequences_wrap_within_a_batch(self, fakes, log, clock):
        append(log, self.batch(fakes, clock, 2**31 - 2, 3))
        assert log.producers.get(9).last_sequence == 0
        assert refused(log, self.batch(fakes, clock, 2**31 - 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert not append(log, self.batch(fakes, clock, 1)).duplicate
        again = append(log, self.batch(fakes, clock, 2**31 - 2, 3))
        assert (again.duplicate, again.base_offset, again.last_offset) == (True, 0, 2)


class TestDiskTrouble:
    @pytest.mark.promise("D8")
    def test_a_full_disk_fails_the_append_and_nothing_else(self, fakes, disk, log, clock):
        append(log, fakes.make_batch(clock.now_ms))
        disk.capacity -= disk.room() - 30
        assert refused(log, fakes.make_batch(clock.now_ms)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert disk.size(log.segments[0].data.path) == log.size_bytes
        assert len(fakes.read_log(log)) == 1
        assert not log.failed
        disk.capacity += 10_000
        append(log, fakes.make_batch(clock.now_ms))
        assert [batch[0] for batch in fakes.read_log(log)] == [0, 1]

    @pytest.mark.parametrize("full", ["leader-epoch-checkpoint", "recovery-point-offset-checkpoint"])
    def test_full_disk_rejects_truncation_unchanged(self, fakes, disk, log, clock, full):
        """A truncated batch must not count as a duplicate later, and a remaining one must."""
        batches = [
            fakes.make_batch(clock.now_ms, producer_id=9, producer_epoch=0, base_sequence=number) for number in range(3)
        ]
        for batch in batches:
            append(log, bytearray(batch))
        log.flush()
        disk.fault = lambda action, path: OSError(errno.ENOSPC, "full") if path.endswith(full) else None
        for offset in (1, 0):
            with pytest.raises(KafkaError) as error:
                log.truncate_to(offset)
            assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaError):
            log.truncate_fully_and_start_at(7)
        assert [batch[0] for batch in fakes.read_log(log)] == [0, 1, 2]
        assert append(log, bytearray(batches[2])).duplicate
        disk.fault = lambda action, path: None
        assert not log.failed
        log.truncate_to(1)
        assert not append(log, bytearray(batches[1])).duplicate
        assert [batch[0] for batch in fakes.read_log(log)] == [0, 1]
        log.truncate_fully_and_start_at(7)
        append(log, fakes.make_batch(clock.now_ms))
        assert [batch[0] for batch in fakes.read_log(log)] == [7]

    def test_interrupted_truncation_stops_appends_but_not_reads(self, fakes, disk, log, clock):
        append(log, fakes.make_batch(clock.now_ms))
        new = "00000000000000000007.log"
        disk.fault = lambda action, path: OSError(errno.ENOSPC, "full") if path.endswith(new) else None
        with pytest.raises(KafkaError):
            log.truncate_fully_and_start_at(7)
        disk.fault = lambda action, path: None
        assert log.failed
        assert refused(log, fakes.make_batch(clock.now_ms)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert [batch[0] for batch in fakes.read_log(log)] == [0]

    def test_a_full_disk_at_a_roll(self, fakes, disk, open_log, clock):
        log = open_log(segment_bytes=200, index_interval_bytes=1)
        for _ in range(2):
            append(log, fakes.make_batch(clock.now_ms))
        disk.fault = lambda action, path: OSError(errno.ENOSPC, "full") if action == "open" else None
        assert refused(log, fakes.make_batch(clock.now_ms)) == ErrorCode.KAFKA_STORAGE_ERROR
        disk.fault = lambda action, path: None
        append(log, fakes.make_batch(clock.now_ms))
        assert [batch[0] for batch in fakes.read_log(log)] == [0, 1, 2]
        assert len(log.segments) == 2

    def test_io_error_stops_appends_but_not_reads(self, fakes, disk, log, clock):
        append(log, fakes.make_batch(clock.now_ms))
        disk.fault = lambda action, path: OSError(errno.EIO, "bad block") if action == "append" else None
        assert refused(log, fakes.make_batch(clock.now_ms)) == ErrorCode.KAFKA_STORAGE_ERROR
        disk.fault = lambda action, path: None
        assert log.failed
        assert refused(log, fakes.make_batch(clock.now_ms)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(fakes.read_log(log)) == 1

    def test_torn_append_that_remains_stops_appends(self, fakes, disk, log, clock):
        append(log, fakes.make_batch(clock.now_ms))
        disk.capacity -= disk.room() - 30
        disk.fault = lambda action, path: OSError(errno.EIO, "bad block") if action == "truncate" else None
        assert refused(log, fakes.make_batch(clock.now_ms)) == ErrorCode.KAFKA_STORAGE_ERROR
        disk.fault = lambda action, path: None
        disk.capacity += 10_000
        assert log.failed
        assert refused(log, fakes.make_batch(clock.now_ms)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(fakes.read_log(log)) == 1
