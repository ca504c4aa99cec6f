"""Starts after anything except a clean stop: torn tails, garbage tails, and damage to every other file."""

from __future__ import annotations

import errno
import logging
import struct
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scale import size

from ottla.common.errors import KafkaError
from ottla.record.batch import ATTRIBUTES_POSITION, CRC_POSITION
from ottla.record.checksum import crc32c
from ottla.record.legacy.message_set import append_message
from ottla.storage.files.log_config import LogConfig

from .maintenance import write_checkpoints

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100)
MAX_INT = (1 << 31) - 1


class Store:
    """A manager with one log on a crash disk, killed and opened on demand."""

    def __init__(self, fakes) -> None:
        self.fakes = fakes
        self.clock = fakes.Clock()
        self.disk = fakes.Disk(self.clock)
        self.reopen()
        self.log = self.manager.create_log("t", 0, bytes(range(16)))
        self.batches: list[bytes] = []
        self.sequence = 0

    def fill(self, count: int, size: int = 20, epoch: int = 0) -> None:
        for _ in range(count):
            self.clock.now_ms += 10
            batch = self.fakes.make_batch(
                self.clock.now_ms, 2, size, producer_id=3, producer_epoch=0, base_sequence=self.sequence
            )
            self.log.append_as_leader(batch, 0, len(batch), epoch)
            self.sequence += 2
            self.batches.append(bytes(batch))

    def reopen(self):
        self.disk.locked.clear()
        self.manager = self.fakes.open_manager(self.disk, self.clock, config=CONFIG)
        self.log = self.manager.get_log("t", 0)
        return self.log

    def stored(self) -> list[bytes]:
        return [data for _, _, data in self.fakes.read_log(self.log)]

    def expected(self, count: int) -> list[bytes]:
        return [batch[16:] for batch in self.batches[:count]]

    def active(self) -> str:
        return self.log.segments[-1].data.path


class NoLuck:
    """Only synced data survives a power failure."""

    def randrange(self, stop: int) -> int:
        return 0


@pytest.fixture
def store(fakes):
    return Store(fakes)


def test_a_kill_loses_nothing(store):
    store.fill(30)
    start, end, epoch = store.log.log_start_offset, store.log.log_end_offset, store.log.leader_epoch
    log = store.reopen()
    assert not store.manager.had_clean_shutdown
    assert (log.log_start_offset, log.log_end_offset, log.leader_epoch) == (start, end, epoch)
    assert store.stored() == store.expected(30)
    assert log.topic_id == bytes(range(16))
    assert log.producers.get(3).last_sequence == 59
    store.fill(3)
    assert store.stored() == store.expected(33)


@pytest.mark.promise("D5")
@pytest.mark.parametrize("cut", [1, 30, 60, 61, 100])
def test_missing_tail_is_truncated(store, caplog, cut):
    store.fill(4)
    path = store.active()
    data = store.disk.read_bytes(path)
    store.disk.write_bytes(path, data[:-cut])
    with caplog.at_level(logging.WARNING):
        log = store.reopen()
    assert log.log_end_offset == 6
    assert store.stored() == store.expected(3)
    assert store.disk.size(path) == sum(len(batch) for batch in store.batches[:3])
    assert any(path in message and f"position {store.disk.size(path)}" in message for message in caplog.messages)


@pytest.mark.parametrize("known_by", ["recovery point", "high watermark"])
def test_log_that_ends_before_a_checkpoint_reports_loss(store, caplog, known_by):
    """A broker that lost records must not present its log as complete (KIP-966)."""
    store.fill(4)
    if known_by == "recovery point":
        store.log.flush()
    store.log.offsets.high_watermark = 2 if known_by == "recovery point" else 8
    directory = store.manager.directories[0]
    directory.notes.note_running(5)
    write_checkpoints(store.manager)
    path = store.active()
    store.disk.write_bytes(path, store.disk.read_bytes(path)[: -len(store.batches[-1])])
    with caplog.at_level(logging.WARNING):
        assert store.reopen().log_end_offset == 6
    assert any("ends at offset 6, below" in message for message in caplog.messages)
    assert store.manager.directories[0].notes.running.broker_epoch == -1


@pytest.mark.promise("D5")
@pytest.mark.parametrize("nonsense", [b"\0", b"\0" * 500, b"\xff" * 500, bytes(range(256)) * 2])
def test_garbage_tail_is_truncated(store, caplog, nonsense):
    store.fill(4)
    path = store.active()
    size = store.disk.size(path)
    store.disk.write_bytes(path, store.disk.read_bytes(path) + nonsense)
    with caplog.at_level(logging.WARNING):
        log = store.reopen()
    assert log.log_end_offset == 8
    assert store.stored() == store.expected(4)
    assert store.disk.size(path) == size
    assert any(path in message and f"position {size}" in message for message in caplog.messages)
    store.fill(2)
    assert store.stored() == store.expected(6)


@given(st.data())
@settings(max_examples=size(15, 150), deadline=None)
def test_a_flipped_byte_is_never_served(fakes, data):
    store = Store(fakes)
    store.fill(12)
    number = data.draw(st.integers(0, len(store.log.segments) - 1))
    path = store.log.segments[number].data.path
    content = bytearray(store.disk.read_bytes(path))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    store.disk.write_bytes(path, bytes(content))
    log = store.reopen()
    whole = [batch[16:] for batch in store.batches]
    found = store.stored()
    # The CRC does not cover offset and leader epoch; a damaged one may pass if it is still in order.
    assert found == whole[: len(found)]
    ends_before_damage = sum(1 for batch in range(12) if _end_of(store, batch, number) <= at)
    assert len(found) >= ends_before_damage
    assert log.log_end_offset >= 2 * ends_before_damage
    store.batches = store.batches[: len(found)]


OFFSET_BYTES, LENGTH_BYTES, EPOCH_BYTES = range(8), range(8, 12), range(12, 16)


def flipped(store, path, position, mask):
    data = bytearray(store.disk.read_bytes(path))
    data[position] ^= mask
    store.disk.write_bytes(path, bytes(data))


@pytest.mark.parametrize("mask", [0x80, 0x01, 0x06])
@pytest.mark.parametrize("flushed", [False, True])
def test_flipped_offset_or_epoch_is_corrected(store, caplog, flushed, mask):
    """Neither has a CRC: the surrounding batches, and the checkpoints of the log, are the evidence."""
    store.fill(9, epoch=4)
    store.fill(3, epoch=4 if not flushed else 6)
    if flushed:
        store.log.flush()
    write_checkpoints(store.manager)
    whole = store.disk.read_bytes(store.active())
    size = len(store.batches[0])
    count = len(whole) // size
    segments = [segment.data.path for segment in store.log.segments] if not flushed else [store.active()]
    assert count > 3, "the epoch changes in the segment"
    contents = {path: store.disk.read_bytes(path) for path in segments}
    for path, content in contents.items():
        for batch in range(len(content) // size):
            is_last = path == segments[-1] and batch == count - 1
            is_lonely = is_last or (path == segments[0] and not batch)
            for at in (*OFFSET_BYTES, *(() if is_lonely and not flushed else EPOCH_BYTES)):
                if is_last and not flushed and mask == 0x06:
                    continue  # such a batch may be from elsewhere
                flipped(store, path, batch * size + at, mask)
                caplog.clear()
                log = store.reopen()
                assert {path: store.disk.read_bytes(path) for path in segments} == contents, (path, batch, at)
                assert (log.log_end_offset, log.unrepaired_damage) == (24, [])
                assert log.epochs.entries() == ([(4, 0), (6, 18)] if flushed else [(4, 0)])
                assert sum("corrected to" in message for message in caplog.messages) == 1


def test_batch_before_a_late_epoch_entry_is_kept(store):
    """Its epoch is that of the next batch, so the entry may be the damaged one."""
    store.fill(1, epoch=4)
    store.fill(2, epoch=6)
    store.log.flush()
    write_checkpoints(store.manager)
    whole = store.disk.read_bytes(store.active())
    path = "/data/t-0/leader-epoch-checkpoint"
    store.disk.write_bytes(path, store.disk.read_bytes(path).replace(b"6 2", b"6 4"))
    log = store.reopen()
    assert store.disk.read_bytes(store.active()) == whole
    assert [doubt.first_offset for doubt in log.unrepaired_damage] == [2]


@pytest.mark.parametrize("number", [0, 1, -1])
def test_flipped_length_is_corrected(store, caplog, number):
    """Too large a length in the last batch looked like the torn end of a write, which is not a loss."""
    store.fill(12)
    path, size = store.active(), len(store.batches[0])
    whole = store.disk.read_bytes(path)
    batch = number % (len(whole) // size)
    for at in LENGTH_BYTES:
        for bit in range(8):
            flipped(store, path, batch * size + at, 1 << bit)
            caplog.clear()
            assert store.reopen().log_end_offset == 24
            assert store.disk.read_bytes(path) == whole, (at, bit)
            assert sum("corrected to" in message for message in caplog.messages) == 1
    flipped(store, path, batch * size + LENGTH_BYTES[-1], 0x06)
    assert store.reopen().log_end_offset == 24 - 2 * (len(whole) // size - batch), "cut where two bits are wrong"


@pytest.mark.parametrize(("at", "mask"), [(7, 0x10), (7, 0x02), (0, 0x80), (5, 0x7)])
def test_last_offset_is_compared_with_clean_stop_record(store, at, mask):
    store.fill(12)
    store.manager.shutdown()
    path = store.active()
    whole = store.disk.read_bytes(path)
    flipped(store, path, len(whole) - len(store.batches[0]) + at, mask)
    assert store.reopen().log_end_offset == 24
    assert store.disk.read_bytes(path) == whole
    store.fill(1)
    store.manager.shutdown()
    assert store.reopen().log_end_offset == 26
    assert store.stored() == store.expected(13)


def test_foreign_batch_at_end_is_truncated(store):
    store.fill(11)
    store.log.flush()
    write_checkpoints(store.manager)
    path = store.active()
    whole = store.disk.read_bytes(path)
    store.disk.write_bytes(path, whole + whole[: len(store.batches[0])])
    assert store.reopen().log_end_offset == 22
    assert store.disk.read_bytes(path) == whole


@pytest.mark.parametrize("delta", [-1, MAX_INT])
def test_batch_with_impossible_last_offset_is_truncated(store, caplog, delta):
    """Its CRC is right: the next batch would have its offset again, or one that a segment can't hold."""
    store.fill(4)
    path = store.active()
    data = bytearray(store.disk.read_bytes(path))
    start = len(data) - len(store.batches[-1])
    struct.pack_into(">i", data, start + ATTRIBUTES_POSITION + 2, delta)
    struct.pack_into(">I", data, start + CRC_POSITION, crc32c(bytes(data[start + ATTRIBUTES_POSITION :])))
    store.disk.write_bytes(path, bytes(data))
    with caplog.at_level(logging.WARNING):
        assert store.reopen().log_end_offset == 6
    assert any(f"a last offset delta of {delta} is impossible" in message for message in caplog.messages)
    assert store.disk.size(path) == start
    assert store.stored() == store.expected(3)


def test_gaps_of_compaction_are_not_closed(store):
    """Log of a follower of a compacting leader: within the gap any offset may be correct."""
    store.fill(1)
    ends = []
    for base in (2, 10, 12, 20, 62):
        batch = store.fakes.make_batch(store.clock.now_ms, 2, 20, base_offset=base, leader_epoch=3)
        store.log.append_as_follower(batch, 0, len(batch))
        ends.append(store.disk.size(store.active()))
    path, whole = store.active(), store.disk.read_bytes(store.active())
    assert store.reopen().log_end_offset == 64
    assert store.disk.read_bytes(path) == whole
    flipped(store, path, ends[0] + 7, 0x40)  # 12 is next
    assert store.reopen().log_end_offset == 64
    assert store.disk.read_bytes(path) == whole
    flipped(store, path, ends[0] + 7, 0x02)
    assert store.fakes.read_log(store.reopen())[2][0] == 8, "it fits as well"
    flipped(store, path, ends[0] + 7, 0x02)
    flipped(store, path, ends[2] + 7, 0x10)  # 20 became 4, and 62 is next
    assert store.reopen().log_end_offset == 14
    assert store.disk.read_bytes(path) == whole[: ends[2]]


@pytest.mark.parametrize("number", [2, 11])
def test_unknown_epoch_is_retained_and_reported(store, caplog, number):
    """Between two epochs in an unflushed range, and at the end."""
    store.fill(3, epoch=4)
    store.fill(9, epoch=9)
    path = store.log.segments[0 if number == 2 else -1].data.path
    size = len(store.batches[0])
    position = 2 * size if number == 2 else store.disk.size(path) - size
    flipped(store, path, position + 12, 0x80)
    damaged = store.disk.read_bytes(path)
    log = store.reopen()
    (doubt,) = log.unrepaired_damage
    assert (doubt.first_offset, doubt.last_offset) == (2 * number, 2 * number + 1)
    assert sum(path in message and "leader epoch" in message for message in caplog.messages) == 1
    assert store.disk.read_bytes(path) == damaged
    assert store.stored() == store.expected(12)
    assert log.epochs.entries() == [(4, 0), (9, 6)]


@pytest.mark.parametrize("entries", [b"2\n4 0\n7 6\n", b"2\n5 0\n9 6\n", b"1\n4 0\n"])
def test_epoch_entries_contradicted_by_batches_are_replaced(store, entries):
    store.fill(3, epoch=4)
    store.fill(4, epoch=9)
    store.log.flush()
    write_checkpoints(store.manager)
    path, whole = store.active(), store.disk.read_bytes(store.active())
    assert len(store.log.segments) == 1
    store.disk.write_bytes("/data/t-0/leader-epoch-checkpoint", b"0\n" + entries)
    log = store.reopen()
    assert log.epochs.entries() == [(4, 0), (9, 6)]
    assert log.unrepaired_damage == []
    assert store.disk.read_bytes(path) == whole


def _end_of(store, batch: int, number: int) -> int:
    """End of a batch relative to the start of segment `number`, at the time of writing."""
    per_segment = 1000 // len(store.batches[0])
    return (batch + 1 - number * per_segment) * len(store.batches[0])


@pytest.mark.parametrize("epochs", [(8, 8), (7, 8)], ids=["the epoch before continues", "another one begins"])
def test_epoch_without_records_does_not_return_after_kill(store, caplog, epochs):
    """Its entry may be in the file, since the start that dropped it did not rewrite the file."""
    before, behind = epochs
    store.fill(1, epoch=before)
    store.log.assign_leader_epoch(9)
    store.manager.shutdown()
    store.reopen()
    end = store.log.log_end_offset
    batch = store.fakes.make_batch(store.clock.now_ms, 2, base_offset=end, leader_epoch=behind)
    store.log.append_as_follower(batch, 0, len(batch))
    caplog.clear()
    log = store.reopen()
    assert log.epochs.entries() == list(
        {before: (before, 0), behind: (behind, 0 if before == behind else end)}.values()
    )
    assert not log.unrepaired_damage
    assert not caplog.records


@pytest.mark.parametrize("count", [1, 5])
def test_truncated_epoch_does_not_return_after_kill(store, count):
    """Nothing was flushed between the start that truncated them and the next."""
    store.fill(3, epoch=4)
    store.fill(4, epoch=9)
    store.log.flush()
    write_checkpoints(store.manager)
    path = store.active()
    store.disk.write_bytes(path, store.disk.read_bytes(path)[: 2 * len(store.batches[0])])
    log = store.reopen()
    assert log.epochs.entries() == [(4, 0)]
    for _ in range(count):
        batch = store.fakes.make_batch(store.clock.now_ms, 2, base_offset=log.log_end_offset, leader_epoch=5)
        log.append_as_follower(batch, 0, len(batch))
    log = store.reopen()
    assert log.epochs.entries() == [(4, 0), (5, 4)]
    assert not log.unrepaired_damage


def test_segments_after_damage_are_dropped(store, caplog):
    store.fill(20)
    assert len(store.log.segments) > 2
    path = store.log.segments[1].data.path
    data = bytearray(store.disk.read_bytes(path))
    data[70] ^= 1
    store.disk.write_bytes(path, bytes(data))
    later = [segment.data.path for segment in store.log.segments[2:]]
    with caplog.at_level(logging.WARNING):
        log = store.reopen()
    assert log.log_end_offset == log.segments[1].base_offset
    assert len(log.segments) == 2
    assert not any(store.disk.exists(name) for name in later)
    assert log.producers.get(3).last_sequence == log.log_end_offset - 1
    store.sequence = log.log_end_offset
    store.batches = store.batches[: log.log_end_offset // 2]
    store.fill(5)
    store.reopen()
    assert store.stored() == [batch[16:] for batch in store.batches]


def test_only_unflushed_segments_are_scanned(store):
    store.fill(20)
    store.log.flush()
    write_checkpoints(store.manager)
    store.fill(1)
    read = []

    def watch(action, path):
        if action == "read" and path.endswith(".log"):
            read.append(path)

    store.disk.fault = watch
    log = store.reopen()
    assert len(log.segments) > 2
    assert set(read) == {log.segments[-1].data.path}
    assert log.log_end_offset == 42


def test_a_clean_start_trusts_and_reads_little(store):
    store.fill(30)
    store.manager.shutdown()
    assert store.disk.read_bytes("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":-1}'
    opened = []
    store.disk.fault = lambda action, path: opened.append(path) if action == "open" else None
    log = store.reopen()
    assert store.manager.had_clean_shutdown
    assert not store.disk.exists("/data/.kafka_cleanshutdown")
    assert len(log.segments) > 2
    assert {path for path in opened if path.endswith(".log")} == {log.segments[-1].data.path}
    assert log.recovery_point == log.log_end_offset == 60
    assert log.producers.get(3).last_sequence == 59
    assert store.stored() == store.expected(30)


def opened_by_reopen(store) -> list[str]:
    opened: list[str] = []
    store.disk.fault = lambda action, path: opened.append(path.rpartition("/")[2]) if action == "open" else None
    store.reopen()
    store.disk.fault = lambda action, path: None
    return opened


def test_clean_start_opens_no_index_of_empty_log(store):
    """With fifty thousand partitions it would open a hundred thousand files that most of them never need."""
    store.manager.shutdown()
    opened = opened_by_reopen(store)
    assert not [name for name in opened if name.endswith("index")]
    store.fill(3)
    assert store.stored() == store.expected(3)


def calls_of_reopen(store) -> Counter[tuple[str, str]]:
    """System calls for the files of the log, by action and path."""
    calls: Counter[tuple[str, str]] = Counter()

    def note(action, path):
        if path.startswith("/data/t-0/"):
            calls[action, path] += 1

    store.disk.fault = note
    store.reopen()
    store.disk.fault = lambda action, path: None
    return calls


def test_clean_start_reads_each_file_once_and_leaves_it_closed(store):
    """With fifty thousand partitions every further call of the system costs a tenth of a second."""
    store.fill(3)
    store.manager.shutdown()
    calls = calls_of_reopen(store)
    assert set(calls.values()) == {1}
    assert {action for action, _ in calls} == {"look", "open", "read"}
    assert store.manager.open_file_count == 0
    store.fill(3)
    assert store.stored() == store.expected(6)


def test_unclean_start_reads_each_file_once_and_leaves_it_closed(store):
    batch = store.fakes.make_batch(store.clock.now_ms, 2)
    store.log.append_as_leader(batch, 0, len(batch), 0)
    calls = calls_of_reopen(store)
    assert set(calls.values()) == {1}
    assert {action for action, _ in calls} == {"look", "open", "read"}
    assert store.manager.open_file_count == 0
    assert store.log.epochs.entries() == [(0, 0)]
    store.fill(3)
    store.reopen()
    assert store.stored() == [bytes(batch)[16:], *store.expected(3)]


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_clean_start_rebuilds_index_that_contradicts_its_log(store, caplog, suffix):
    store.fill(3)
    store.manager.shutdown()
    path = f"/data/t-0/00000000000000000000.{suffix}"
    entry = struct.pack(">ii", 1, 7) if suffix == "index" else struct.pack(">qi", store.clock.now_ms + 9, 1)
    store.disk.write_bytes(path, entry)
    with caplog.at_level(logging.WARNING):
        store.reopen()
    assert any("rebuilding" in message for message in caplog.messages)
    assert store.disk.read_bytes(path) != entry
    store.fill(1)
    assert store.stored() == store.expected(4)


def test_reopened_segment_keeps_largest_timestamp(store):
    store.fill(1)
    newest = store.clock.now_ms + 1
    store.manager.shutdown()
    store.reopen()
    store.clock.now_ms -= 5000
    store.fill(1)
    assert store.log.max_timestamp()[:2] == store.log.lookup_timestamp(newest)[:2] == (1, newest)


def test_reopened_segment_with_full_index_rolls(store):
    config = CONFIG._replace(segment_bytes=100_000, segment_index_bytes=24)
    store.log.config = config
    while store.log.active_segment.indexes.entry_count < 2:
        store.fill(1)
    assert len(store.log.segments) == 1
    store.manager.shutdown()
    store.reopen()
    store.log.config = config
    store.fill(1)
    assert len(store.log.segments) == 2


def test_unclean_start_opens_no_file_of_empty_log(store):
    assert not [name for name in opened_by_reopen(store) if name.endswith(("log", "index"))]
    store.fill(3)
    assert store.stored() == store.expected(3)


def test_unclean_start_empties_indexes_of_empty_segment(store):
    for suffix, width in (("index", 8), ("timeindex", 12)):
        path = f"/data/t-0/00000000000000000000.{suffix}"
        store.disk.write_bytes(path, bytes([1]) * width)
        store.reopen()
        assert store.disk.size(path) == 0


@pytest.mark.promise("D5")
def test_clean_marker_over_torn_log_is_ignored(store, caplog):
    store.fill(4)
    store.manager.shutdown()
    path = store.active()
    store.disk.write_bytes(path, store.disk.read_bytes(path) + b"nonsense")
    with caplog.at_level(logging.WARNING):
        log = store.reopen()
    assert log.log_end_offset == 8
    store.fill(1)
    assert store.stored() == store.expected(5)


@pytest.mark.parametrize("damage", [b"", b"garbage", b"0\n5\n1 2\n", b"0\n1\n0 x\n", b"\xff\xfe"])
def test_damaged_epoch_file_is_rebuilt_from_log(store, damage):
    store.fill(3, epoch=2)
    store.fill(3, epoch=5)
    store.manager.shutdown()
    store.disk.unlink("/data/.kafka_cleanshutdown")
    store.disk.write_bytes("/data/t-0/leader-epoch-checkpoint", damage)
    log = store.reopen()
    assert log.epochs.entries() == [(2, 0), (5, 6)]


@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_damaged_producer_snapshot_is_skipped(store, stop):
    store.fill(12)
    if stop == "clean":
        store.manager.shutdown()
    snapshots = [name for name in store.disk.listdir("/data/t-0") if name.endswith(".snapshot")]
    assert snapshots
    for name in snapshots:
        data = bytearray(store.disk.read_bytes(f"/data/t-0/{name}"))
        data[-1] ^= 1
        store.disk.write_bytes(f"/data/t-0/{name}", bytes(data))
    log = store.reopen()
    assert log.producers.get(3).last_sequence == 23
    assert [batch[1] for batch in log.producers.get(3).batches] == [15, 17, 19, 21, 23]


def test_leftovers_of_a_crash_are_removed(store):
    store.fill(2)
    before = store.disk.listdir("/data/t-0")
    left = [
        "00000000000000000007.index",
        "00000000000000000000.log.deleted",
        "00000000000000000000.txnindex.swap.deleted",
        "00000000000000000009.snapshot.tmp",
        "leader-epoch-checkpoint.tmp",
        "partition.metadata.tmp",
    ]
    strangers = ["notes.tmp", "7.log.tmp", "copy of 00000000000000000000.log.deleted"]
    for name in left + strangers:
        store.disk.write_bytes(f"/data/t-0/{name}", b"12345678")
    store.reopen()
    assert {*store.disk.listdir("/data/t-0")} - {*before} == {*strangers}
    assert not {*left} & {*store.disk.listdir("/data/t-0")}


def test_indexes_are_synced_once_segment_is_complete(store):
    """A start after a crash begins with the segment of the recovery point, and rebuilds no earlier one."""
    store.fill(6)
    store.log.flush()
    complete = store.log.segments[0]
    store.log.roll()
    store.fill(1)
    store.log.flush()
    assert store.log.recovery_point == store.log.log_end_offset
    assert not complete.indexes.to_sync()
    for suffix in (".index", ".timeindex"):
        inode = store.disk._file(complete.data.path.replace(".log", suffix))
        assert inode.durable == bytes(inode.data) != b""


def test_indexes_of_segment_at_recovery_point_are_rebuilt(store):
    """It was flushed while it was active, without its indexes: the next flush would have synced them."""
    late = store.clock.now_ms + 50_000
    for number in range(8):
        timestamp = late if number == 2 else store.clock.now_ms + number
        batch = store.fakes.make_batch(timestamp, 1, 50)
        store.log.append_as_leader(batch, 0, len(batch), 0)
    store.log.flush()
    write_checkpoints(store.manager)
    store.log.roll()
    store.fill(1)
    complete = store.log.segments[0]
    assert complete.indexes.offset.last_entry()[0] > 2
    index = store.disk._file(complete.data.path.replace(".log", ".index"))
    index.durable = bytes(index.data)  # the disk wrote the one index, and not yet the other
    store.disk.files.sync_directory(store.log.directory)
    store.disk.crash(NoLuck())
    store.reopen()
    assert store.log.lookup_timestamp(late) == (2, late, 0)


def test_truncation_removes_later_segments_durably_first(store):
    """A power failure in between must not leave a gap before them."""
    store.fill(30)
    store.log.flush()
    end = store.log.segments[1].base_offset
    store.disk.fault = lambda action, path: OSError(errno.EIO, "power") if action == "truncate" else None
    with pytest.raises(KafkaError):
        store.log.truncate_to(2)
    store.disk.fault = lambda action, path: None
    store.disk.crash(NoLuck())
    assert store.reopen().log_end_offset == end


def test_broker_starts_on_full_disk(store):
    store.fill(30)
    store.disk.capacity = 0
    log = store.reopen()
    assert store.stored() == store.expected(30)
    with pytest.raises(KafkaError):
        store.fill(1)
    store.disk.capacity = 1 << 40
    store.sequence = 60
    store.fill(1)
    assert log.log_end_offset == 62
    store.manager.shutdown()
    assert store.reopen().log_end_offset == 62
    assert store.manager.had_clean_shutdown


def test_a_batch_larger_than_the_walks_window(fakes):
    store = Store(fakes)
    config = LogConfig(max_message_bytes=10_000_000)
    store.manager.get_log("t", 0).config = config
    store.fill(1)
    store.fill(1, size=1_500_000)
    store.fill(1)
    log = store.reopen()
    assert log.log_end_offset == 6
    path = store.active()
    data = bytearray(store.disk.read_bytes(path))
    data[2_000_000] ^= 1
    store.disk.write_bytes(path, bytes(data))
    assert store.reopen().log_end_offset == 2


def old_message(magic: int, offset: int, value: bytes) -> bytes:
    """A message set of one message, as stored by brokers before 0.11."""
    out = bytearray()
    append_message(out, magic, 0, offset, 1_400_000_000_000, None, value)
    return bytes(out)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("size", [0, 20, 100])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_scanned(store, magic, size, clean):
    store.fill(1)
    path = store.active()
    if clean:
        store.manager.shutdown()
        store.disk.unlink(path.replace(".log", ".index"))
    data = b"".join(old_message(magic, offset, b"v" * size) for offset in range(5))
    store.disk.write_bytes(path, data)
    log = store.reopen()
    assert log.log_end_offset == 5
    assert store.disk.read_bytes(path) == data
    assert [log.segments[0].search.find_offset(offset)[2] for offset in range(5)] == list(range(5))
    store.fill(1)
    assert store.reopen().log_end_offset == 7


def test_a_torn_message_behind_batches_is_cut(store):
    store.fill(2)
    path = store.active()
    before = store.disk.read_bytes(path)
    whole = old_message(0, 4, b"")
    store.disk.write_bytes(path, before + whole)
    assert store.reopen().log_end_offset == 5
    store.disk.write_bytes(path, before + whole + old_message(1, 5, b"v")[:-1])
    assert store.reopen().log_end_offset == 5
    assert store.disk.read_bytes(path) == before + whole


def test_garbage_with_old_magic_is_truncated(store):
    store.fill(2)
    path = store.active()
    before = store.disk.read_bytes(path)
    message = bytearray(old_message(1, 4, b"v" * 100))
    message[-1] ^= 1
    store.disk.write_bytes(path, before + bytes(message))
    assert store.reopen().log_end_offset == 4
    assert store.disk.read_bytes(path) == before
