"""The cleaner compared with a dictionary: surviving records and their offsets, and crashes at any step."""

from __future__ import annotations

import contextlib
import errno
import itertools
import struct
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.file_system import MemoryFile

from ottla.common.errors import InvariantError, KafkaError
from ottla.record.batch import ATTRIBUTES_POSITION, CRC_POSITION, BatchView, iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.record.checksum import crc32c
from ottla.record.compression import GZIP, LZ4, NONE, SNAPPY
from ottla.record.control import end_transaction_marker
from ottla.record.keys import ENTRY_BYTES, SECRET_BYTES
from ottla.record.legacy.message_set import Message, append_message_set, messages_of
from ottla.record.legacy.stored import MessageView, iter_views
from ottla.storage.compaction.cleaning import Cleaning, Round
from ottla.storage.compaction.offset_map import OffsetMap
from ottla.storage.compaction.retention import LastRecord
from ottla.storage.compaction.rewriting import Output
from ottla.storage.compaction.sources import Source, group
from ottla.storage.files.descriptors import Descriptors, Folder
from ottla.storage.files.log_config import MAX_INT, LogConfig
from ottla.storage.log import swap
from ottla.storage.segment.index import IndexCorruption

from .maintenance import write_checkpoints
from .turns import Death

CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=100, cleanup_policy=frozenset({"compact"}))
SECRET = bytes(SECRET_BYTES)
RETENTION_MS = 1000
PATH = "/data/t-0"


class Partition:
    """One compacted log that is written like a follower's, and cleaned."""

    def __init__(self, fakes) -> None:
        self.fakes = fakes
        self.clock = fakes.Clock()
        self.disk = fakes.Disk(self.clock)
        self.open()
        self.log = self.manager.create_log("t", 0, bytes(range(16)))
        self.clean_offset = 0
        self.last_records: dict[int, LastRecord] = {}

    def open(self) -> None:
        self.manager = self.fakes.open_manager(self.disk, self.clock, config=CONFIG)
        self.log = self.manager.get_log("t", 0)

    def append(self, records, compression="none", **options) -> int:
        """Append records as (key, value); returns the base offset."""
        self.clock.now_ms += 10
        offset = self.log.log_end_offset
        data = [RecordData(self.clock.now_ms + number, *record) for number, record in enumerate(records)]
        batch = build_batch(data, base_offset=offset, leader_epoch=0, compression=compression, **options)
        self.log.append_as_follower(batch, 0, len(batch))
        return offset

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        marker = end_transaction_marker(
            commit=commit,
            timestamp_ms=self.clock.now_ms,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            base_offset=self.log.log_end_offset,
            leader_epoch=0,
        )
        self.log.append_as_follower(marker, 0, len(marker))

    def roll(self) -> None:
        self.log.roll()
        self.log.flush()

    def round(self, **changes) -> Round:
        segments = self.log.segments.in_order
        sources = [
            Source(segment.base_offset, later.base_offset, segment.data.size_bytes, 0, segment.data.mtime_ms())
            for segment, later in itertools.pairwise(segments)
        ]
        return Round(
            sources,
            [self.log.active_segment.base_offset],
            self.log.log_start_offset,
            self.clean_offset,
            self.log.active_segment.base_offset,
            self.last_records,
            self.clock.now_ms,
            RETENTION_MS,
            4000,
            1 << 20,
            100,
            24 * 1000,
            0.9,
            300,
            1 << 20,
            SECRET,
        )._replace(**changes)

    def clean(self, **changes) -> int:
        """Run a pass like the owner of a log; returns the number of segments swapped in."""
        folder = self.log.folder
        owned = self.log.begin_cleaning()
        cleaning = Cleaning(self.round(**changes), Folder(Descriptors(self.disk, 8), folder.path), lambda count: None)
        count = 0
        for cleaned in cleaning.groups():
            if not cleaned.outputs:
                continue
            owned.stage(cleaned)
            owned.sync()
            owned.take_in()
            owned.sync()
            owned.settle()
            count += len(cleaned.outputs)
        self.log.end_cleaning()
        self.clean_offset = cleaning.end_offset
        cleaning.close()
        return count

    def batches(self) -> list[BatchView]:
        found, offset = [], self.log.log_start_offset
        while offset < self.log.log_end_offset:
            result = self.log.read(offset, 1 << 20, max_offset=self.log.log_end_offset)
            if result.records is None:
                break
            data = result.records.read_all()
            result.records.release()
            found += iter_batches(data)
            offset = found[-1].next_offset
        return found

    def records(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """(offset, key, value) of all records, aborted or not, in reading order."""
        for batch in (batches := self.batches()):
            assert batch.crc_matches()
        return [(r.offset, r.key, r.value) for b in batches if not b.is_control for r in b.records()]

    def committed(self) -> dict[bytes, tuple[int, bytes | None]]:
        """Latest record of each key for a read_committed reader."""
        latest: dict[bytes, tuple[int, bytes | None]] = {}
        for batch in self.batches():
            found = self.log.read(batch.base_offset, 1, max_offset=self.log.log_end_offset)
            aborted = self.log.aborted.within(batch.base_offset, found, self.log.log_end_offset)
            if found.records is not None:
                found.records.release()
            if batch.is_control or (
                batch.is_transactional
                and any(producer == batch.producer_id and first <= batch.base_offset for producer, first in aborted)
            ):
                continue
            for record in batch.records():
                if record.key is not None:
                    latest[record.key] = (record.offset, record.value)
        return {key: (offset, value) for key, (offset, value) in latest.items() if value is not None}


@pytest.fixture
def partition(fakes):
    return Partition(fakes)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_latest_record_of_each_key_is_retained_in_place(partition, compression):
    partition.append([(b"a", b"1"), (b"b", b"2"), (None, b"no key")], compression)
    partition.append([(b"b", b"3"), (b"c", b"4")], compression)
    partition.roll()
    partition.append([(b"c", b"5")], compression)
    before = {batch.base_offset: batch.to_bytes() for batch in partition.batches()}
    partition.clean()
    assert partition.records() == [(0, b"a", b"1"), (3, b"b", b"3"), (4, b"c", b"4"), (5, b"c", b"5")]
    assert [(batch.base_offset, batch.last_offset) for batch in partition.batches()] == [(0, 2), (3, 4), (5, 5)]
    after = {batch.base_offset: batch.to_bytes() for batch in partition.batches()}
    assert after[3] == before[3], "what stays whole is copied"
    assert after[0] != before[0]
    assert partition.log.read(1, 100, max_offset=6).offset == 1


def test_timestamps_are_those_of_surviving_records(partition):
    partition.append([(b"a", b"1"), (b"b", b"2")])
    partition.append([(b"b", b"3")])
    partition.roll()
    times = {r.offset: r.timestamp for b in partition.batches() for r in b.records()}
    partition.clean()
    first, _ = partition.batches()
    assert first.max_timestamp == times[0]
    assert {r.offset: r.timestamp for b in partition.batches() for r in b.records()} == {0: times[0], 2: times[2]}
    assert partition.log.lookup_timestamp(times[2]) == (2, times[2], 0)


def test_tombstone_is_retained_until_delete_horizon(partition):
    partition.append([(b"a", b"1")])
    partition.append([(b"x", b"1"), (b"a", None)])
    partition.append([(b"z", b"1")])
    partition.roll()
    times = {r.offset: r.timestamp for b in partition.batches() for r in b.records()}
    partition.clean()
    horizon = partition.clock.now_ms + RETENTION_MS
    batch = partition.batches()[0]
    assert batch.delete_horizon_ms == horizon
    assert {r.offset: r.timestamp for b in partition.batches() for r in b.records()} == {n: times[n] for n in (1, 2, 3)}
    partition.clock.now_ms = horizon - 1
    assert partition.clean() == 0, "nothing to drop, so nothing is written"
    partition.clock.now_ms = horizon
    assert partition.clean() == 1
    assert partition.records() == [(1, b"x", b"1"), (3, b"z", b"1")]
    assert partition.batches()[0].delete_horizon_ms == horizon


def test_the_time_of_an_append_outlives_a_rewritten_batch(partition):
    partition.append([(b"b", None), (b"a", b"1")], timestamp_type=1)
    partition.append([(b"a", b"2")])
    partition.roll()
    newest = partition.batches()[0].max_timestamp
    partition.clean()
    batch = partition.batches()[0]
    assert batch.delete_horizon_ms is not None
    assert batch.max_timestamp == newest == next(batch.records()).timestamp


def test_last_batches_of_pass_and_producers_stay_empty(partition):
    partition.append([(b"a", b"1"), (b"a", b"2")], "lz4", producer_id=7, producer_epoch=1, base_sequence=5)
    partition.append([(b"a", b"3")], producer_id=8, producer_epoch=1, base_sequence=0)
    partition.append([(b"a", b"4")])
    partition.append([(None, b"5")])
    partition.roll()
    partition.last_records = {7: LastRecord(1, 1)}
    partition.clean()
    of_seven, whole, last = partition.batches()
    assert (of_seven.records_count, of_seven.last_sequence, of_seven.last_offset, of_seven.codec_id) == (0, 6, 1, 0)
    assert whole.base_offset == 3
    assert (last.records_count, last.last_offset) == (0, 4)
    assert all(batch.crc_matches() for batch in partition.batches())
    assert partition.clean() == 0
    partition.last_records = {}
    partition.append([(b"b", b"1")])
    partition.roll()
    partition.clean()
    assert [batch.base_offset for batch in partition.batches()] == [3, 5]


def test_markers_are_dropped_a_horizon_after_batches(partition):
    options = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    partition.append([(b"a", b"kept")])
    partition.append([(b"a", b"aborted"), (b"b", b"aborted")], producer_id=1, **options)
    partition.append([(b"c", b"committed")], producer_id=2, **options)
    partition.end_transaction(1, commit=False)
    partition.end_transaction(2, commit=True)
    partition.append([(b"d", b"1")])
    partition.roll()
    partition.clean()
    assert partition.records() == [(0, b"a", b"kept"), (3, b"c", b"committed"), (6, b"d", b"1")]
    assert [batch.base_offset for batch in partition.batches() if batch.is_control] == [4, 5]
    assert partition.log.segments[0].aborted.index is not None
    partition.append([(b"c", b"2")])
    partition.roll()
    partition.clean()
    assert partition.log.segments[0].aborted.index is None, "no aborted records are left"
    abort, commit = [batch for batch in partition.batches() if batch.is_control]
    assert abort.delete_horizon_ms == partition.clock.now_ms + RETENTION_MS
    assert commit.delete_horizon_ms is None, "it saw a batch of its transaction"
    partition.clock.now_ms += RETENTION_MS
    partition.clean()
    assert [batch.base_offset for batch in partition.batches() if batch.is_control] == [5]
    partition.clock.now_ms += RETENTION_MS
    partition.clean()
    assert [batch.base_offset for batch in partition.batches() if batch.is_control] == []


def test_unindexed_aborted_transaction_fails_pass(partition):
    partition.append([(b"a", b"kept")])
    partition.append([(b"a", b"x")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    partition.end_transaction(1, commit=False)
    partition.roll()
    partition.disk.unlink(f"{PATH}/00000000000000000000.txnindex")
    with pytest.raises(KafkaError, match="in no index"):
        partition.clean()
    partition.disk.write_bytes(f"{PATH}/00000000000000000000.txnindex", b"short")
    with pytest.raises(IndexCorruption, match="not a multiple of the entry size"):
        partition.clean()


def test_keys_beyond_offset_map_take_several_passes(partition):
    for number in range(60):
        partition.append([(f"{number % 20}".encode(), b"%d" % number), (b"%d" % (number % 7 + 100), b"y")])
        if number % 11 == 0:
            partition.roll()
    partition.roll()
    want = partition.committed()
    rounds = 0
    while partition.clean_offset < partition.log.active_segment.base_offset:
        before = partition.clean_offset
        partition.clean(dedupe_buffer_bytes=10 * ENTRY_BYTES, load_factor=0.5)
        assert partition.clean_offset > before
        assert partition.committed() == want
        rounds += 1
    assert rounds > 5
    kept = partition.records()
    assert len({key for _, key, _ in kept}) == len(want)


def test_damaged_batch_fails_pass_and_is_reported(partition):
    partition.append([(b"a", b"1"), (b"a", b"2")])
    partition.roll()
    path = f"{PATH}/00000000000000000000.log"
    data = bytearray(partition.disk.read_bytes(path))
    data[-1] ^= 1
    partition.disk.write_bytes(path, bytes(data))
    with pytest.raises(KafkaError, match="CRC of the batch at offset 0"):
        partition.clean()


def append_messages(partition, magic, codec_id, messages) -> None:
    """Append messages of an old format as (offset, key, value)."""
    data = bytearray()
    append_message_set(data, [Message(offset, -1 + 9 * magic, *rest) for offset, *rest in messages], magic, codec_id)
    partition.log.append_as_follower(data, 0, len(data))


def stored(partition) -> list:
    """(format, codec, offset, records) of everything in complete segments."""
    data = [segment.data.descriptor.read(1 << 20, 0) for segment in partition.log.segments[:-1]]
    found = []
    for view in iter_views(b"".join(data)):
        assert isinstance(view, MessageView)
        records = [(one.offset, one.timestamp_ms, bytes(one.key or b"")) for one in messages_of(view.entry())]
        found.append((view.magic, view.codec_id, view.last_offset, records))
    return found


@pytest.mark.parametrize("codec_id", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_format_wrapper_is_rewritten_with_survivors(partition, magic, codec_id):
    time_ms = 8 if magic else -1
    append_messages(partition, magic, codec_id, [(0, b"a", b"1"), (1, b"b", b"2"), (2, b"c", b"3"), (3, b"a", b"4")])
    append_messages(partition, magic, NONE, [(4, b"c", b"5")])
    written_ms = partition.clock.now_ms
    partition.roll()
    partition.clock.now_ms += 5000
    partition.clean()
    assert stored(partition) == [
        (magic, codec_id, 3, [(1, time_ms, b"b"), (3, time_ms, b"a")]),
        (magic, NONE, 4, [(4, time_ms, b"c")]),
    ]
    assert partition.log.segments[0].data.mtime_ms() == written_ms


def test_old_format_tombstones_expire_by_segment_age(partition):
    append_messages(partition, 1, NONE, [(0, b"a", None), (1, b"b", b"1")])
    partition.roll()
    partition.clock.now_ms += RETENTION_MS
    append_messages(partition, 1, NONE, [(2, b"c", b"1")])
    partition.roll()
    partition.clean()
    assert [last for _, _, last, _ in stored(partition)] == [0, 1, 2], "nothing was clean before"
    append_messages(partition, 1, NONE, [(3, b"d", None)])
    partition.roll()
    partition.clean()
    assert [last for _, _, last, _ in stored(partition)] == [1, 2, 3]


def test_last_record_of_last_message_is_retained(partition):
    append_messages(partition, 0, GZIP, [(0, b"a", b"1"), (1, None, b"2"), (2, None, b"3")])
    partition.roll()
    partition.clean(end_offset=3)
    assert partition.log.segments[0].search.find_end()[0] == 3


def test_wrapper_with_overlapping_offsets_fails_pass(partition):
    append_messages(partition, 0, NONE, [(5, b"a", b"1")])
    append_messages(partition, 0, GZIP, [(5, b"a", b"1"), (6, b"b", b"2")])
    partition.roll()
    with pytest.raises(KafkaError, match="offset 5 follows after 5"):
        partition.clean()


@pytest.mark.parametrize(("position", "layout", "value"), [(0, ">q", 0), (23, ">i", -1)], ids=["base", "delta"])
def test_segment_with_repeated_offsets_fails_the_pass(partition, position, layout, value):
    """A batch that begins where the last one did, and one that ends before it begins."""
    partition.append([(b"a", b"1")])
    start = partition.log.segments[0].data.size_bytes
    partition.append([(b"b", b"2")])
    partition.roll()
    path = partition.log.segments[0].data.path
    data = bytearray(partition.disk.read_bytes(path))
    struct.pack_into(layout, data, start + position, value)
    struct.pack_into(">I", data, start + CRC_POSITION, crc32c(bytes(data[start + ATTRIBUTES_POSITION :])))
    partition.disk.overwrite(path, bytes(data))
    with pytest.raises(KafkaError, match=r"offset \d follows 0"):
        partition.clean()


def test_transaction_from_below_log_start_is_not_damage(partition):
    """A start does not know it any more, so the index names only the one that was aborted behind the log start."""
    producer = {"producer_id": 5, "producer_epoch": 0, "is_transactional": True}
    partition.append([(b"a", b"1")], base_sequence=0, **producer)
    partition.append([(b"b", b"2")])
    partition.log.delete_records(1)
    partition.disk.files.process_died()
    write_checkpoints(partition.manager)
    partition.open()
    partition.append([(b"b", b"3")], base_sequence=1, **producer)
    partition.end_transaction(5, commit=False)
    partition.roll()
    partition.clean_offset = 1
    partition.clean()
    assert partition.committed() == {b"b": (1, b"2")}


@pytest.mark.parametrize("by_reference", [True, False])
def test_adjacent_unchanged_batches_are_copied_by_reference(partition, monkeypatch, by_reference):
    copied = []
    append_from = MemoryFile.append_from

    def watched(self, source, position, length):
        copied.append(length)
        return append_from(self, source, position, length if by_reference else 0)

    monkeypatch.setattr(MemoryFile, "append_from", watched)
    partition.append([(b"small", b"1"), (b"gone", b"1")])
    for number in range(50):
        partition.append([(b"a%d" % number, b"x" * 10_000)])
    partition.append([(b"b", b"1"), (b"gone", b"2")])
    for number in range(3):
        partition.append([(b"c%d" % number, b"x")])
    partition.roll()
    partition.append([(b"gone", b"3")])
    partition.roll()
    before = partition.batches()
    partition.clean(segment_bytes=1 << 20)
    assert [(offset, key) for offset, key, _ in partition.records()] == [
        (0, b"small"),
        *((2 + number, b"a%d" % number) for number in range(50)),
        (52, b"b"),
        *((54 + number, b"c%d" % number) for number in range(3)),
        (57, b"gone"),
    ]
    assert copied == [sum(batch.size_bytes for batch in before[1:51])]
    for batch in partition.batches():
        assert partition.log.read(batch.base_offset, 1, max_offset=58).offset == batch.base_offset


def bases(partition) -> list[int]:
    return [segment.base_offset for segment in partition.log.segments]


def test_unchanged_large_segment_in_group_is_not_rewritten(partition):
    partition.append([(b"large", b"x" * 500)])
    partition.roll()
    partition.append([(b"a", b"1")])
    partition.roll()
    partition.append([(b"a", b"2")])
    partition.roll()
    before = partition.disk.files.names[f"{PATH}/00000000000000000000.log"]
    assert partition.clean() == 1
    assert bases(partition) == [0, 1, 3]
    assert partition.disk.files.names[f"{PATH}/00000000000000000000.log"] is before
    assert partition.records() == [(0, b"large", b"x" * 500), (2, b"a", b"2")]
    assert partition.clean() == 0, "unchanged data is moved only together with as many bytes"


def test_small_segments_before_first_change_are_rewritten(partition):
    partition.append([(b"small", b"1")])
    partition.roll()
    partition.append([(b"a", b"x" * 500)])
    partition.append([(b"a", b"2")])
    partition.roll()
    before = partition.batches()[0].to_bytes()
    assert partition.clean() == 1
    assert bases(partition) == [0, 3]
    assert partition.batches()[0].to_bytes() == before
    assert partition.records() == [(0, b"small", b"1"), (2, b"a", b"2")]


def test_small_segments_merge_without_moving_large_ones(partition):
    for number, size in enumerate((500, 10, 10, 10)):
        partition.append([(b"%d" % number, b"x" * size)])
        partition.roll()
    want = partition.records()
    assert partition.clean() == 1
    assert bases(partition) == [0, 1, 4]
    assert partition.records() == want
    assert partition.clean() == 0


def test_number_of_rewrites_per_byte_is_bounded(partition):
    written = 0
    for number in range(64):
        partition.append([(b"%d" % number, b"x" * 10)])
        partition.roll()
        before = set(partition.disk.files.names.values())
        partition.clean()
        written += sum(
            len(inode.data)
            for name, inode in partition.disk.files.names.items()
            if name.startswith(PATH) and name.endswith(".log") and inode not in before
        )
    total = sum(segment.data.size_bytes for segment in partition.log.segments)
    assert total < written <= total * 7
    assert len(bases(partition)) <= 9


def test_oversized_group_is_split_into_segments(partition):
    partition.append([(b"a", b"x" * 50)])
    partition.append([(b"b", b"x" * 50)])
    partition.append([(b"c", b"x" * 50)])
    batches = [batch.to_bytes() for batch in partition.batches()]
    output = Output(partition.log.folder, 0, 100, len(batches[0]) * 2, {})
    for batch in batches:
        output.write(batch)
    output.complete()
    assert [(segment.base_offset, segment.data.size_bytes) for segment in output.segments] == [
        (0, len(batches[0]) * 2),
        (2, len(batches[0])),
    ]
    far = bytearray(batches[2])
    far[:8] = (MAX_INT + 1).to_bytes(8, "big")
    output = Output(partition.log.folder, 0, 100, MAX_INT, {})
    output.write(batches[0])
    output.write(far)
    output.complete()
    assert [segment.base_offset for segment in output.segments] == [0, MAX_INT + 1]
    partition.log.begin_cleaning()
    assert not [name for name in partition.disk.listdir(PATH) if name.endswith(".cleaned")]


def test_segments_are_grouped_as_far_as_one_may_hold_them():
    def sources(*sizes, step=10, index=1):
        return [Source(number * step, (number + 1) * step, size, index, 0) for number, size in enumerate(sizes)]

    def sizes(groups):
        return [[source.size_bytes for source in one] for one in groups]

    assert sizes(group(sources(3, 4, 5, 9, 1), 9, 100)) == [[3, 4], [5], [9], [1]]
    assert sizes(group(sources(3, 4, 5), 100, 2)) == [[3, 4], [5]]
    assert sizes(group(sources(3, 4, 5, step=1 << 30), 100, 100)) == [[3, 4], [5]]
    assert sizes(group(sources(3, 0, 0, step=1 << 30), 100, 100)) == [[3, 0, 0]]
    assert group([], 1, 1) == []


def one_record(key: bytes) -> tuple[bytes, array[int]]:
    """Return a body that is the key, and its row of the index."""
    return key, array("q", [0, 0, 0, len(key), len(key), 0, len(key), 0])


class TestOffsetMap:
    @staticmethod
    def latest(offset_map, key, below=500) -> int:
        """Return the lowest retained offset of a key in the map; -1 if the map does not have the key."""
        for offset in range(below):
            if offset_map.surviving(*one_record(key), offset, keeps_tombstones=True)[0]:
                return offset or -1
        raise AssertionError(f"nothing stays of {key}")

    def test_offset_map_equals_dictionary_within_capacity(self):
        offset_map = OffsetMap(100 * ENTRY_BYTES, 0.75, SECRET)
        known = {}
        for offset in range(1, 500):
            key = b"%d" % (offset * 7 % 90)
            if not offset_map.note(*one_record(key), offset, 0):
                break
            known[key] = offset
        assert len(offset_map) == len(known) == 75
        assert offset_map.latest_offset == offset - 1
        assert {key: self.latest(offset_map, key) for key in known} == known
        assert self.latest(offset_map, b"nobody") == -1
        assert self.latest(offset_map, b"%d" % (offset * 7 % 90)) == -1, "keys beyond the capacity are unknown"
        assert offset_map.utilization == 0.75

    def test_keys_of_any_length_take_same_space(self):
        offset_map = OffsetMap(10 * ENTRY_BYTES, 1.0, SECRET)
        assert offset_map.note(*one_record(b""), 1, 0)
        assert offset_map.note(*one_record(b"k" * 100_000), 2, 0)
        assert (self.latest(offset_map, b""), self.latest(offset_map, b"k" * 100_000)) == (1, 2)

    def test_later_records_follow_earlier_ones(self):
        offset_map = OffsetMap(10 * ENTRY_BYTES, 1.0, SECRET)
        assert offset_map.note(*one_record(b"a"), 5, 0)
        with pytest.raises(InvariantError, match="offset 5 was noted after 5"):
            offset_map.note(*one_record(b"b"), 5, 0)


KEYS = st.sampled_from([b"a", b"b", b"c", b"d", None])
VALUES = st.sampled_from([b"1", b"2" * 30, None])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5),
            st.sampled_from(["none", "lz4"]),
            st.integers(0, 3),
        ),
        st.tuples(st.just("end"), st.integers(1, 3), st.booleans(), st.just(0)),
        st.tuples(st.just("roll"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("clean"), st.integers(2, 12), st.just(0), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, RETENTION_MS), st.just(0), st.just(0)),
        st.tuples(st.just("die"), st.integers(0, 60), st.booleans(), st.integers(1, 1000)),
    ),
    max_size=30,
)


class Machine:
    """Random steps on a partition; after each of them a reader agrees with a dictionary."""

    def __init__(self, fakes) -> None:
        self.fakes = fakes
        self.partition = Partition(fakes)
        self.open: set[int] = set()
        self.want: dict[bytes, tuple[int, bytes | None]] = {}

    def append(self, records, compression, producer_id) -> None:
        if not producer_id:
            self.partition.append(records, compression)
            return
        self.open.add(producer_id)
        self.partition.append(
            records, compression, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )

    def end(self, producer_id, commit, _) -> None:
        if producer_id in self.open:
            self.open.discard(producer_id)
            self.partition.end_transaction(producer_id, commit=commit)

    def roll(self, *_) -> None:
        self.partition.roll()

    def wait(self, ms, *_) -> None:
        self.partition.clock.now_ms += ms

    def clean(self, slots, *_) -> None:
        for producer_id in sorted(self.open):
            self.end(producer_id, True, 0)
        self.partition.roll()
        self.want = self.partition.committed()
        self.partition.last_records = {1: LastRecord(self.partition.log.log_end_offset // 2, 0)}
        self.partition.clean(dedupe_buffer_bytes=slots * ENTRY_BYTES, load_factor=0.7)
        assert self.partition.committed() == self.want

    def die(self, actions, power, seed) -> bool:
        """Run a pass that ends with the process after so many actions of the disk; returns whether it took more."""
        partition = self.partition
        left = [actions]

        def fault(action, path):
            left[0] -= 1
            if left[0] < 0:
                raise Death

        for producer_id in sorted(self.open):
            self.end(producer_id, True, 0)
        partition.roll()
        write_checkpoints(partition.manager)
        want, before = partition.committed(), partition.records()
        partition.disk.fault = fault
        try:
            partition.clean()
        except Death:
            pass
        finally:
            partition.disk.fault = lambda action, path: None
        if power:
            partition.disk.crash(self.fakes.Rng(seed))
        else:
            partition.disk.files.process_died()
        partition.open()
        assert partition.committed() == want
        assert set(partition.records()) <= set(before)
        assert not [name for name in partition.disk.listdir(PATH) if name.endswith((".cleaned", ".swap"))]
        partition.clean_offset = 0
        return left[0] < 0

    def check(self) -> None:
        offsets = [offset for offset, _, _ in self.partition.records()]
        assert offsets == sorted(set(offsets))
        for segment, later in itertools.pairwise(self.partition.log.segments):
            next_offset, size, _ = segment.search.find_end()
            assert (size, next_offset <= later.base_offset) == (segment.data.size_bytes, True), (
                "no batch is in two segments"
            )


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_readers_agree_with_dictionary(fakes, steps):
    machine = Machine(fakes)
    for name, *arguments in steps:
        getattr(machine, name)(*arguments)
        machine.check()


def test_crash_at_any_step_loses_nothing(fakes):
    """Each action of a pass that rewrites two groups, one of two segments, ends the process, or the power."""
    for power in (False, True):
        for actions in itertools.count():
            machine = Machine(fakes)
            machine.append([(b"a", b"1"), (b"b", b"1")], "lz4", 0)
            machine.roll()
            machine.append([(b"a", b"x" * 3000)], "none", 1)
            machine.end(1, False, 0)
            machine.roll()
            machine.append([(b"b", b"2" * 2000), (b"c", None)], "none", 2)
            machine.end(2, True, 0)
            machine.append([(b"b", b"3")], "none", 0)
            before = len(machine.partition.records())
            died = machine.die(actions, power, actions + 1)
            machine.check()
            machine.clean(100)
            machine.check()
            assert len(machine.partition.records()) < before
            if not died:
                break
        assert actions > 40


def begun(partition):
    """A pass with the cleaned files of a group, and that group."""
    partition.append([(b"a", b"1")])
    partition.append([(b"a", b"2")])
    partition.roll()
    owned = partition.log.begin_cleaning()
    cleaning = Cleaning(partition.round(), partition.log.folder, lambda count: None)
    return owned, next(cleaning.groups())


@pytest.mark.parametrize("step", ["stage", "sync", "take_in", "sync again", "settle"])
def test_truncation_ends_pass_at_any_step_for_good(partition, step):
    owned, cleaned = begun(partition)
    steps = {
        "stage": lambda: owned.stage(cleaned),
        "sync": owned.sync,
        "take_in": owned.take_in,
        "sync again": owned.sync,
        "settle": owned.settle,
    }
    for name, act in steps.items():
        act()
        if name == step:
            break
    partition.log.truncate_to(1)
    assert partition.log.cleaning is None
    assert owned.is_over
    expected = [(0, b"a", b"1")] if step in ("stage", "sync") else []
    assert partition.records() == expected
    partition.disk.crash(partition.fakes.Rng(3))
    partition.open()
    assert partition.records() == expected
    assert partition.log.log_end_offset <= 1


def test_ended_pass_cannot_continue(partition):
    owned, cleaned = begun(partition)
    partition.log.truncate_fully_and_start_at(9)
    with pytest.raises(InvariantError, match="after its end"):
        owned.stage(cleaned)


def test_clean_stop_reverts_swap_in_progress(partition):
    owned, cleaned = begun(partition)
    owned.stage(cleaned)
    partition.manager.shutdown()
    partition.open()
    assert partition.manager.had_clean_shutdown
    assert partition.records() == [(0, b"a", b"1"), (1, b"a", b"2")]


@pytest.mark.parametrize("power", [False, True])
def test_crash_in_unstage_keeps_each_record_once(fakes, power):
    """The second output starts within the old segment, as where a group needs more than one."""
    for actions in itertools.count():
        partition = Partition(fakes)
        for number in range(4):
            partition.append([(b"%d" % number, b"v")])
        first, second, third, fourth = (batch.to_bytes() for batch in partition.batches())
        partition.roll()
        expected = partition.records()
        for base_offset, data in ((0, first + second), (2, third + fourth)):
            partition.disk.write_bytes(f"{PATH}/{base_offset:020}.log.cleaned", data)
            partition.disk.write_bytes(f"{PATH}/{base_offset:020}.index.cleaned", b"")
            partition.disk.write_bytes(f"{PATH}/{base_offset:020}.timeindex.cleaned", b"")
        swap.stage(partition.log.folder, [0, 2])
        partition.disk.fsync_dir(PATH)
        left = [actions]

        def fault(action, path, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise Death

        partition.disk.fault = fault
        with contextlib.suppress(Death):
            swap.unstage(partition.log.folder, [0, 2])
        partition.disk.fault = lambda action, path: None
        if power:
            partition.disk.crash(fakes.Rng(actions))
        else:
            partition.disk.files.process_died()
        partition.open()
        assert partition.records() == expected, f"crash before action {actions}"
        for segment, later in itertools.pairwise(partition.log.segments):
            assert segment.search.find_end()[0] <= later.base_offset, (
                f"crash before action {actions}: a batch is in two segments"
            )
        if left[0] >= 0:
            break
    assert actions > 6


def test_start_reverts_segment_with_only_staged_indexes(disk):
    """After a crash before the data file was renamed, no index of the cleaned segment may replace an old one."""
    disk.makedirs("/d")
    old = {f"{0:020}{suffix}": b"old" for suffix in (".log", ".index", ".timeindex", ".txnindex")}
    for name, data in old.items():
        disk.write_bytes(f"/d/{name}", data)
        disk.write_bytes(f"/d/{name}{'.cleaned' if name.endswith('.log') else '.swap'}", b"new")
    swap.finish_swaps(Folder(Descriptors(disk, 8), "/d"))
    assert {name: disk.read_bytes(f"/d/{name}") for name in disk.listdir("/d")} == old


@pytest.mark.parametrize("done", [0, 1, 2])
def test_log_is_removed_during_swap(partition, done):
    owned, cleaned = begun(partition)
    for act in (lambda: owned.stage(cleaned), owned.take_in)[:done]:
        act()
    partition.manager.delete_log("t", 0)
    assert owned.is_over
    assert not partition.disk.exists(PATH)


def test_retention_waits_for_the_end_of_a_pass(partition):
    begun(partition)
    partition.log.delete_records(2)
    assert partition.log.delete_old_segments(partition.clock.now_ms) == 0
    partition.log.end_cleaning()
    assert partition.log.delete_old_segments(partition.clock.now_ms) == 1


def test_full_disk_reverts_stage(partition):
    owned, cleaned = begun(partition)
    partition.disk.fault = lambda action, path: OSError(errno.ENOSPC, "full") if path.endswith(".log.cleaned") else None
    with pytest.raises(KafkaError, match="staging cleaned segments of t-0 failed"):
        owned.stage(cleaned)
    partition.disk.fault = lambda action, path: None
    assert owned.is_over
    assert not partition.log.failed
    assert not [name for name in partition.disk.listdir(PATH) if name.endswith(".swap")]


@pytest.mark.parametrize("suffix", [".log", ".log.swap"])
def test_interrupted_swap_stops_appends_until_restart(partition, suffix):
    owned, cleaned = begun(partition)
    owned.stage(cleaned)
    partition.disk.fault = lambda action, path: OSError(errno.EIO, "bad") if path.endswith(suffix) else None

    def retry():
        owned.take_in()
        owned.settle()

    with pytest.raises(KafkaError, match=r"cleaned segments( in)? of t-0 failed"):
        retry()
    partition.disk.fault = lambda action, path: None
    assert partition.log.failed
    partition.disk.files.process_died()
    partition.open()
    assert partition.records() == [(1, b"a", b"2")]
