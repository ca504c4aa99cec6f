"""A compacted log compared with a list: random appends, truncations, retention and crashes between cleaner steps.

The list contains every written batch. A record missing in the log must have been removed rightly: it was aborted, a
later one has its key, it is an expired tombstone, or retention deleted its segment. The read_committed view of each
key, and the next sequence number of each producer, are recomputed from the list each time.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from simulation.step_cleaner import StepWorker
from tests.scale import size

from ottla.record.batch import BatchView, Record
from ottla.record.builder import RecordData, build_batch
from ottla.record.compression import GZIP, LZ4, NONE, SNAPPY
from ottla.record.control import EndMarker
from ottla.record.errors import CorruptBatch
from ottla.record.keys import ENTRY_BYTES
from ottla.record.legacy.message_set import Message, append_message_set
from ottla.record.legacy.stored import MessageView, batch_of_messages, iter_views
from ottla.record.transactions import AbortedAt, TransactionFilter
from ottla.storage.compaction import retention
from ottla.storage.compaction.cleaning import Cleaning
from ottla.storage.compaction.offset_map import OffsetMap
from ottla.storage.compaction.retention import BatchFilter, rewritten_batch
from ottla.storage.compaction.transactions import CleanedTransactions
from ottla.storage.directory.log_cleaner import CleanerSettings, LogCleaner
from ottla.storage.files.log_config import LogConfig
from ottla.storage.log.log import Log
from ottla.storage.log.log_cleaning import LogCleaning
from ottla.storage.repair.scrub_reading import SegmentReading

from .maintenance import run_retention, write_checkpoints
from .turns import Death, Turns

DELETE_RETENTION_MS = 1000
CONFIG = LogConfig(
    segment_bytes=700,
    index_interval_bytes=150,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=DELETE_RETENTION_MS,
)
CONFIGS = {
    "compact": CONFIG,
    "by time": CONFIG._replace(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=4000),
    "by size": CONFIG._replace(cleanup_policy=frozenset({"compact", "delete"}), retention_bytes=2500, retention_ms=-1),
}
NO_PRODUCER, OLDER, NEWER, PLAIN = -1, 5, 6, 7
"""Producers: one without an id, two transactional (version 1 and 2: its epoch rises), and an idempotent one."""

RECORDS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), st.sampled_from([0, 1, 1, 60])), min_size=1, max_size=4
)
CODECS = st.sampled_from(["none", "none", "gzip", "snappy", "lz4", "zstd"])
OLD_CODECS = st.sampled_from([NONE, NONE, GZIP, SNAPPY, LZ4])
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from([NO_PRODUCER, PLAIN]), RECORDS, CODECS),
    st.tuples(st.just("write"), st.sampled_from([OLDER, NEWER]), RECORDS, CODECS),
    st.tuples(st.just("fill"), st.sampled_from([NO_PRODUCER, PLAIN]), RECORDS, CODECS),
    st.tuples(st.just("fill"), st.sampled_from([OLDER, NEWER]), RECORDS, CODECS),
    st.tuples(st.just("write_old"), st.sampled_from([0, 1]), RECORDS, OLD_CODECS),
    st.tuples(st.just("fill_old"), st.sampled_from([0, 1]), RECORDS, OLD_CODECS),
    st.tuples(st.just("end"), st.sampled_from([OLDER, NEWER]), st.booleans()),
    st.tuples(st.just("replicate"), st.integers(0, 100)),
    st.tuples(st.just("roll")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("wait"), st.sampled_from([50, 400, DELETE_RETENTION_MS, 3000])),
    st.tuples(st.just("clean"), st.integers(2, 9)),
    st.tuples(st.just("clean"), st.integers(2, 9)),
    st.tuples(st.just("some_steps"), st.integers(1, 9)),
    st.tuples(st.just("retention")),
    st.tuples(st.just("delete_records"), st.integers(0, 100)),
    st.tuples(st.just("truncate"), st.integers(0, 100)),
    st.tuples(st.just("stop")),
    st.tuples(st.just("kill"), st.booleans()),
    st.tuples(st.just("lose_power"), st.integers(1, 10_000)),
    st.tuples(st.just("die"), st.integers(0, 80), st.integers(0, 10_000)),
)
SCHEDULES = st.lists(OPERATIONS, min_size=10, max_size=60)


class Written(NamedTuple):
    """A record as written."""

    offset: int
    key: bytes | None
    value: bytes | None
    time_ms: int
    written_ms: int
    """Timestamp of the record, if it has its own."""


class Batch(NamedTuple):
    """A batch of the list; `commits` is None except for markers."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    records: tuple[Written, ...] = ()
    commits: bool | None = None


class Oracle:
    """State derived from the whole list."""

    def __init__(self, batches: list[Batch]) -> None:
        self.committed: list[Written] = []
        self.aborted: set[int] = set()
        self.open: dict[int, list[Batch]] = {}
        self.producers: dict[int, Batch] = {}
        """Latest record of each key."""
        for batch in batches:
            if batch.producer_id != NO_PRODUCER:
                self.producers[batch.producer_id] = self._newest(batch)
            if batch.commits is None:
                if batch.producer_id in (OLDER, NEWER):
                    self.open.setdefault(batch.producer_id, []).append(batch)
                else:
                    self.committed += batch.records
                continue
            records = [record for one in self.open.pop(batch.producer_id, ()) for record in one.records]
            if batch.commits:
                self.committed += records
            else:
                self.aborted |= {record.offset for record in records}
        self.committed.sort()
        self.latest = {record.key: record for record in self.committed}

    def _newest(self, batch: Batch) -> Batch:
        before = self.producers.get(batch.producer_id)
        if batch.commits is None or before is None or before.producer_epoch != batch.producer_epoch:
            return batch
        return before  # a marker of the same epoch does not change the sequence


class Machine:
    """One compacted log with its cleaner on a crash disk, and the list that it must agree with."""

    def __init__(self, fakes, config: LogConfig) -> None:
        self.fakes = fakes
        self.config = config
        self.clock = fakes.Clock()
        self.disk = fakes.Disk(self.clock)
        self.batches: list[Batch] = []
        self.values = itertools.count()
        self.damaged = False
        self.in_snapshots: set[int] = set()
        self.durable_end = self.high_watermark = self.least_cut = self.start = 0
        self.open()

    def open(self) -> None:
        self.manager = self.fakes.open_manager(self.disk, self.clock, config=self.config)
        self.log = self.manager.get_log("t", 0) or self.manager.create_log("t", 0, bytes(range(16)))
        self.turns = Turns(self.fakes.Pool())
        self.cleaner = LogCleaner(
            self.manager,
            CleanerSettings(1, 100 * ENTRY_BYTES, 0.9, 300, 1e9),
            lambda: StepWorker(self.disk, self.turns.steps.append),
            pool=self.turns.pool,
            clock=self.clock,
            rng=self.fakes.Rng(5),
        )
        self.log.offsets.begin_high_watermark(self.high_watermark)
        self.high_watermark = self.log.high_watermark
        # After a clean start it is unknown whether the marker of a decided transaction is replicated.
        self.least_cut = self.log.log_end_offset

    # -- writers

    def write(self, producer_id: int, records, codec: str) -> None:
        self.clock.now_ms += 10
        before = self.log.producers.get(producer_id)
        epoch, sequence = (0, -1) if before is None else (before.producer_epoch, before.last_sequence)
        if producer_id == NO_PRODUCER:
            epoch = sequence = -1
        data = [
            RecordData(self.clock.now_ms + number, key, b"%d" % next(self.values) * size or None)
            for number, (key, size) in enumerate(records)
        ]
        transactional = producer_id in (OLDER, NEWER)
        batch = build_batch(
            data,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=-1 if producer_id == NO_PRODUCER else sequence + 1,
            is_transactional=transactional,
        )
        guard = None
        if transactional:
            newer = producer_id == NEWER
            guard = self.log.begin_verification(producer_id, epoch, sequence + 1, supports_epoch_bump=newer)
        end = self.log.log_end_offset
        result = self.log.append_as_leader(batch, 0, len(batch), 0, guard=guard)
        assert (result.base_offset, result.duplicate) == (end, False)
        written = tuple(
            Written(end + number, one.key, one.value, one.timestamp_ms, one.timestamp_ms)
            for number, one in enumerate(data)
        )
        self.batches.append(Batch(end, result.last_offset, producer_id, epoch, sequence + len(data), written))
        self.in_snapshots.discard(producer_id)
        if producer_id != NO_PRODUCER:
            assert self.log.append_as_leader(batch, 0, len(batch), 0).duplicate

    def write_old(self, magic: int, records, codec_id: int) -> None:
        """Append old messages of format v0 or v1, as a replica gets them."""
        self.clock.now_ms += 10
        end = self.log.log_end_offset
        written = []
        for number, (key, length) in enumerate(records):
            time_ms = self.clock.now_ms + number if magic else -1
            value = b"%d" % next(self.values) * length or None
            written.append(Written(end + number, key, value, time_ms, self.clock.now_ms))
        data = bytearray()
        messages = [Message(one.offset, one.time_ms, one.key, one.value) for one in written]
        append_message_set(data, messages, magic, codec_id)
        self.log.writer.append_as_follower(data, 0, len(data))
        for together in [written] if codec_id else [[one] for one in written]:
            self.batches.append(Batch(together[0].offset, together[-1].offset, NO_PRODUCER, -1, -1, tuple(together)))

    def fill_old(self, magic: int, records, codec_id: int) -> None:
        """See `fill`."""
        self.write_old(magic, records, codec_id)
        self.complete(len(records))

    def fill(self, producer_id: int, records, codec: str) -> None:
        """Append a complete, durable and replicated segment; the number of its records decides the end of
        transactions.
        """
        self.write(producer_id, records, codec)
        self.complete(len(records))

    def complete(self, count: int) -> None:
        for each in list(Oracle(self.batches).open):
            self.end(each, count % 2 == 1)
        self.roll()
        self.flush()
        self.high_watermark = self.log.offsets.high_watermark = self.log.log_end_offset

    def end(self, producer_id: int, commits: bool) -> None:
        if producer_id not in Oracle(self.batches).open:
            return
        epoch = Oracle(self.batches).producers[producer_id].producer_epoch + (producer_id == NEWER)
        marker = EndMarker(producer_id, epoch, 1, commits, 2 if producer_id == NEWER else 1)
        self.log.check_marker(marker)
        offset = self.log.writer.append_end_markers([marker], 0).base_offset
        self.batches.append(Batch(offset, offset, producer_id, epoch, -1, (), commits))

    def replicate(self, choice: int) -> None:
        ends = [batch.last_offset + 1 for batch in self.batches if batch.last_offset >= self.high_watermark]
        if ends:
            self.high_watermark = self.log.offsets.high_watermark = ends[choice % len(ends)]

    def roll(self) -> None:
        self.log.roll()

    def flush(self) -> None:
        self.log.flush()
        self.durable_end = self.log.log_end_offset

    def checkpoint(self) -> None:
        write_checkpoints(self.manager)

    def wait(self, ms: int) -> None:
        self.clock.now_ms += ms

    # -- removal of records

    def clean(self, slots: int) -> None:
        self.cleaner.settings = self.cleaner.settings._replace(dedupe_buffer_bytes=slots * ENTRY_BYTES)
        self.cleaner.run_due()
        self.turns.take_all()

    def some_steps(self, count: int) -> None:
        self.cleaner.run_due()
        for _ in range(count):
            self.turns.take_one()

    def retention(self) -> None:
        run_retention(self.manager)
        first, *later = self.log.segments
        is_replicated = later and later[0].base_offset <= self.high_watermark
        if self.config.retention_bytes >= 0 and is_replicated and self.log.cleaning is None:
            assert self.log.size_bytes - first.data.size_bytes < self.config.retention_bytes

    def check_retention(self, before: list[Record]) -> None:
        """The start moved on its own, by retention or at the end of a pass; `before` is the log before that."""
        gone = [record for record in before if record.offset < self.log.log_start_offset]
        if gone and self.config.retention_bytes >= 0:
            assert self.log.size_bytes >= self.config.retention_bytes
        elif gone:
            assert self.config.deleted_by_age_or_size
            assert self.clock.now_ms - max(record.timestamp for record in gone) > self.config.retention_ms
        self.start = self.log.log_start_offset

    def delete_records(self, choice: int) -> None:
        if self.high_watermark > self.start:
            self.start += choice % (self.high_watermark - self.start + 1)
            self.log.delete_records(self.start)

    def truncate(self, choice: int) -> None:
        """Never below the high watermark: a dropped record may have been superseded by one that is truncated."""
        least = max(self.high_watermark, self.least_cut)
        ends = [batch.base_offset for batch in self.batches if batch.base_offset >= least]
        if ends:
            end = ends[choice % len(ends)]
            self.log.truncate_to(end)
            self.cut(end)

    def cut(self, end: int) -> None:
        # In a cleaned log a producer is known by its newest batch: a truncation of it leaves older state in snapshots
        # only.
        self.in_snapshots |= {batch.producer_id for batch in self.batches if batch.last_offset >= end}
        self.batches = [batch for batch in self.batches if batch.last_offset < end]
        self.durable_end = min(self.durable_end, end)
        self.high_watermark = min(self.high_watermark, end)

    # -- crashes

    def stop(self) -> None:
        self.cleaner.stop()
        self.turns.take_all()
        self.manager.shutdown()
        assert self.disk.open_count == 0
        self.durable_end = self.log.log_end_offset
        self.reopen(all_is_there=True)

    def kill(self, damages_snapshots: bool) -> None:
        self.disk.files.process_died()
        self.damaged |= damages_snapshots
        if damages_snapshots:
            for name in self.disk.listdir("/data/t-0"):
                if name.endswith(".snapshot"):
                    self.disk.write_bytes(f"/data/t-0/{name}", b"nonsense")
        self.reopen(all_is_there=True)

    def lose_power(self, seed: int) -> None:
        self.disk.crash(self.fakes.Rng(seed))
        self.reopen(all_is_there=False)

    def die(self, actions: int, seed: int) -> None:
        """Crash at one of the next actions of the disk, in a pass or in retention; a power failure if there is a
        seed.
        """
        left = [actions]

        def fault(action, path):
            left[0] -= 1
            if left[0] < 0:
                raise Death

        self.disk.fault = fault
        try:
            self.clean(9)
            run_retention(self.manager)
            self.checkpoint()
        except Death:
            pass
        finally:
            self.disk.fault = lambda action, path: None
        if seed:
            self.lose_power(seed)
        else:
            self.kill(False)

    def reopen(self, *, all_is_there: bool) -> None:
        self.disk.open_count = 0
        end = self.log.log_end_offset
        self.open()
        found = self.log.log_end_offset
        assert (end if all_is_there else self.durable_end) <= found <= end
        self.cut(found)
        if self.log.log_start_offset < self.start <= found:
            # Deleted records that return are deleted again: here as in Apache Kafka no pass has added their keys.
            self.log.delete_records(self.start)
            self.high_watermark = self.log.high_watermark
        self.start = self.log.log_start_offset
        left = self.disk.listdir("/data/t-0")
        assert not [name for name in left if name.endswith((".cleaned", ".swap"))]

    # -- invariants

    def read(self) -> list[tuple[BatchView, bool]]:
        """Return every batch of the log, and whether a read_committed reader sees it."""
        log, found, offset = self.log, [], self.log.log_start_offset
        while offset < log.log_end_offset:
            result = log.read(offset, 500, max_offset=log.log_end_offset)
            if result.records is None:
                break
            aborted = log.aborted.within(offset, result, log.log_end_offset)
            transactions = TransactionFilter([AbortedAt(*one) for one in aborted])
            data = result.records.read_all()
            result.records.release()
            batches = [
                batch_of_messages([view.entry()]) if isinstance(view, MessageView) else view
                for view in iter_views(data)
            ]
            assert all(batch.crc_matches() for batch in batches)
            found += [(batch, transactions.passes(batch)) for batch in batches]
            offset = batches[-1].next_offset
        return found

    def records(self) -> list[tuple[Record, bool]]:
        """Return the same for the records from the log start on."""
        batches = [(batch, seen) for batch, seen in self.read() if not batch.is_control]
        records = [(record, seen) for batch, seen in batches for record in batch.records()]
        return [(record, seen) for record, seen in records if record.offset >= self.log.log_start_offset]

    def check(self) -> None:
        oracle = Oracle(self.batches)
        written = {record.offset: record for batch in self.batches for record in batch.records}
        there = self.records()
        offsets = [record.offset for record, _ in there]
        assert self.log.log_start_offset == self.start
        assert offsets == sorted(set(offsets)), "in order, and each once"
        for record, _ in there:
            assert (record.offset, record.key, record.value, record.timestamp) == written[record.offset][:4]
        gone = [written[offset] for offset in written.keys() - set(offsets) if offset >= self.start]
        assert not [record for record in gone if not self.may_be_gone(oracle, record)], "records were lost"
        seen = {record.key: record for record, seen in there if seen and self.is_decided(oracle, record.offset)}
        want = {key: record.value for key, record in oracle.latest.items() if record.offset >= self.start}
        assert {key: record.value for key, record in seen.items() if record.value is not None} == {
            key: value for key, value in want.items() if value is not None
        }
        self.check_cleaned(oracle, offsets)
        self.check_producers(oracle)
        assert not self.cleaner.uncleanable

    def is_decided(self, oracle: Oracle, offset: int) -> bool:
        return not any(one.base_offset <= offset <= one.last_offset for each in oracle.open.values() for one in each)

    def may_be_gone(self, oracle: Oracle, record: Written) -> bool:
        if record.offset >= self.log.active_segment.base_offset:
            return False
        if record.offset in oracle.aborted:
            return True
        latest = oracle.latest.get(record.key)
        if latest is None or not self.is_decided(oracle, record.offset):
            return False
        had_its_time = record.value is None and self.clock.now_ms - record.written_ms >= DELETE_RETENTION_MS
        return latest.offset > record.offset or had_its_time

    def check_cleaned(self, oracle: Oracle, offsets: list[int]) -> None:
        """Below the cleaner's checkpoint each key exists once, and no aborted record."""
        clean_offset = self.manager.cleaner_checkpoint.get(("t", 0)) or 0
        keys = [record.key for record in oracle.committed if record.offset < clean_offset and record.offset in offsets]
        assert len(keys) == len(set(keys)), "superseded records are dropped"
        assert not [offset for offset in offsets if offset in oracle.aborted and offset < clean_offset]

    def check_producers(self, oracle: Oracle) -> None:
        for producer_id, newest in oracle.producers.items():
            entry = self.log.producers.get(producer_id)
            is_forgotten = self.damaged and producer_id in self.in_snapshots
            if newest.base_offset >= self.start and not is_forgotten:
                assert entry is not None, f"{producer_id} was forgotten"
                assert (entry.producer_epoch, entry.last_sequence) == (newest.producer_epoch, newest.last_sequence)

    def run(self, operations) -> None:
        for name, *arguments in operations:
            before = [record for record, _ in self.records()]
            getattr(self, name)(*arguments)
            if name in ("clean", "some_steps", "retention"):
                self.check_retention(before)
            self.check()
        self.check_scrubber()

    def check_scrubber(self) -> None:
        """It reports nothing about cleaned segments."""
        if self.log.cleaning is not None:
            return
        seen = None
        for number in range(len(self.log.segments)):
            reading = SegmentReading(self.log, number, was_cleaned=True, seen_before=seen)
            reading.read(1 << 20)
            reading.close()
            seen = reading.seen_behind
            assert (reading.damages, reading.aborted_problem) == ([], "")


DELETED_UP_TO_A_MARKER = [
    *(("write", -1, [(b"a", 0)] * count, "none") for count in (1, 1, 4, 4)),
    ("fill", 5, [(b"a", 0)], "none"),
    ("write", -1, [(b"a", 0)] * 3, "none"),
    ("end", 5, False),
    ("fill", 5, [(b"a", 0)] * 4, "none"),
    ("delete_records", 19),
    ("clean", 2),
]
"""The cleaner retains no entry for a transaction without readable records."""

COMPACTED_MARKER = [
    ("write", 6, [(b"a", 0)], "none"),
    ("fill", -1, [(b"a", 0)], "none"),
    ("clean", 3),
    ("fill", -1, [(b"a", 0)], "none"),
    ("clean", 3),
    ("wait", 3000),
    ("fill", -1, [(b"a", 0)], "none"),
    ("clean", 3),
    ("kill", True),
]
"""Without snapshots the epoch of a producer is known by its marker only, of which compaction left an empty batch."""


@pytest.mark.promise("D11")
@pytest.mark.parametrize("config", CONFIGS)
@given(operations=SCHEDULES)
@example(operations=DELETED_UP_TO_A_MARKER)
@example(operations=COMPACTED_MARKER)
@settings(max_examples=size(12, 120), report_multiple_bugs=False, deadline=None)
def test_a_compacted_log_agrees_with_a_list(fakes, config, operations) -> None:
    Machine(fakes, CONFIGS[config]).run(operations)


def drop_tombstones_early(patch) -> None:
    surviving = OffsetMap.surviving
    patch.setattr(OffsetMap, "surviving", lambda *of, keeps_tombstones: surviving(*of, keeps_tombstones=False))


def drop_old_tombstones_early(patch) -> None:
    patch.setattr(Cleaning, "_old_tombstones_horizon_ms", lambda self: 1 << 62)


def lose_a_record_of_a_wrapper(patch) -> None:
    with_records = MessageView.with_records
    patch.setattr(MessageView, "with_records", lambda self, kept, unpack: with_records(self, kept[:1], unpack))


def drop_the_last_batch_of_a_producer(patch) -> None:
    patch.setattr(BatchFilter, "_is_last_of_producer", lambda self, batch: False)


def shift_the_offsets_of_a_rewritten_batch(patch) -> None:
    def shifted(batch, *rest) -> bytearray:
        out = rewritten_batch(batch, *rest)
        out[:8] = (batch.base_offset + 1).to_bytes(8, "big")  # not covered by the CRC
        return out

    patch.setattr(retention, "rewritten_batch", shifted)


def take_aborted_records_for_committed(patch) -> None:
    patch.setattr(CleanedTransactions, "is_aborted", lambda self, batch: False)


def clean_uncommitted(patch) -> None:
    patch.setattr(Log, "last_stable_offset", lambda self, high_watermark: self.log_end_offset)


def clean_volatile(patch) -> None:
    patch.setattr(Log, "recovery_point", property(lambda self: self.log_end_offset))


def take_segments_in_before_their_names_are_durable(patch) -> None:
    patch.setattr(LogCleaning, "sync", lambda self: None)


@pytest.mark.parametrize(
    "plant",
    [
        drop_tombstones_early,
        drop_old_tombstones_early,
        lose_a_record_of_a_wrapper,
        drop_the_last_batch_of_a_producer,
        shift_the_offsets_of_a_rewritten_batch,
        take_aborted_records_for_committed,
        clean_uncommitted,
        clean_volatile,
        take_segments_in_before_their_names_are_durable,
    ],
)
def test_a_planted_defect_is_found(fakes, plant, monkeypatch) -> None:
    @given(operations=SCHEDULES)
    @settings(max_examples=5000, phases=[Phase.generate], derandomize=True, database=None, deadline=None)
    def run(operations) -> None:
        Machine(fakes, CONFIG).run(operations)

    plant(monkeypatch)
    with pytest.raises((AssertionError, CorruptBatch)):  # a torn record differs from the written one
        run()
