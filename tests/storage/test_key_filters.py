"""Key filters: a range without a key has no record with it, whatever happens to the log and to the files."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.step_cleaner import StepWorker
from tests.scale import size

from ottla.record.batch import iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.record.compression import NONE
from ottla.record.control import end_transaction_marker
from ottla.record.keys import ENTRY_BYTES
from ottla.record.legacy.message_set import Message, append_message_set
from ottla.storage.directory.key_filters import MIN_AGE_MS, BuilderSettings, KeyFilterBuilder
from ottla.storage.directory.log_cleaner import CleanerSettings, LogCleaner
from ottla.storage.files.log_config import LogConfig
from ottla.storage.files.off_loop import Known, WouldBlock
from ottla.storage.log.key_ranges import KeyFreeRanges, KeyQuery, find_key_free
from ottla.storage.segment.segment import KEY_FILTER_REFUSED

from .maintenance import run_retention
from .turns import Turns

CONFIG = LogConfig(
    segment_bytes=400,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
    ottla_search_index="key",
)
CLEANER = CleanerSettings(1, 100 * ENTRY_BYTES, 0.9, 300, 1e9)
KEYS = tuple(b"%c" % letter for letter in b"abcdef")


class Site:
    """A log, its cleaner and its builder of key filters; `build` continues until no work is left."""

    def __init__(self, fakes, config: LogConfig = CONFIG) -> None:
        self.fakes = fakes
        self.config = config
        self.clock = fakes.Clock()
        self.disk = fakes.Disk(self.clock)
        self.open()
        self.manager.create_log("t", 0, bytes(16), config)

    def open(self) -> None:
        self.disk.locked.clear()
        self.manager = self.fakes.open_manager(self.disk, self.clock, config=self.config)
        self.turns = Turns(self.fakes.Pool())
        worker = StepWorker(self.disk, self.turns.steps.append)
        self.builder = KeyFilterBuilder(self.manager, BuilderSettings(300, 1e9), worker, self.clock)
        self.cleaner = LogCleaner(
            self.manager,
            CLEANER,
            lambda: StepWorker(self.disk, self.turns.steps.append),
            pool=self.turns.pool,
            clock=self.clock,
            rng=self.fakes.Rng(5),
        )

    @property
    def log(self):
        return self.manager.get_log("t", 0)

    @property
    def files(self) -> list[str]:
        return [f"/data/t-0/{name}" for name in self.disk.listdir("/data/t-0") if name.endswith(".keyfilter")]

    def append(self, *keys: bytes | None, codec: str = "none", value: bytes = b"v", producer_id: int = -1) -> None:
        records = [RecordData(self.clock.now_ms + number * 7 % 5, key, value) for number, key in enumerate(keys)]
        is_transactional = producer_id >= 0
        self.store(
            build_batch(
                records,
                base_offset=self.log.log_end_offset,
                compression=codec,
                producer_id=producer_id,
                producer_epoch=0 if is_transactional else -1,
                base_sequence=0 if is_transactional else -1,
                is_transactional=is_transactional,
            )
        )

    def store(self, batch: bytes | bytearray) -> None:
        self.clock.now_ms += 10
        self.log.append_as_follower(bytearray(batch), 0, len(batch))

    def roll(self) -> None:
        self.log.roll()
        self.log.flush()

    def build(self) -> None:
        self.clock.now_ms += MIN_AGE_MS
        self.builder.run_due()
        self.turns.take_all()

    def compact(self) -> None:
        self.cleaner.run_due()
        self.turns.take_all()
        run_retention(self.manager)

    def records(self) -> list[tuple[int, bytes | None, int]]:
        """(offset, key, timestamp) of all records."""
        log, found = self.log, []
        offset = log.log_start_offset
        while (result := log.read(offset, 1 << 20, max_offset=log.log_end_offset)).records is not None:
            data = result.records.read_all()
            result.records.release()
            for batch in iter_batches(data):
                if not batch.is_control:
                    found += [(each.offset, each.key, each.timestamp) for each in batch.records()]
                offset = batch.next_offset
        return found

    def without(self, *keys: bytes, with_transactions: bool = True, start: int | None = None) -> KeyFreeRanges:
        log, known = self.log, Known()
        first = log.log_start_offset if start is None else start
        query = KeyQuery(keys, first, log.log_end_offset, with_transactions)
        while True:
            try:
                return find_key_free(log, query, known)
            except WouldBlock as needed:
                known[needed.key] = needed.attempt()

    def check(self) -> int:
        """Compare the ranges of all keys with the records; returns their number."""
        records, count = self.records(), 0
        for key in (*KEYS, b"absent"):
            found = self.without(key)
            assert found.searched_end == self.log.log_end_offset
            edges = [edge for each in found.ranges for edge in each[:2]]
            assert edges == sorted(edges)
            for each in found.ranges:
                inside = [record for record in records if each.start <= record[0] < each.end]
                assert key not in [record[1] for record in inside]
                assert len(inside) == each.records
                if inside:
                    assert each.newest_ms == max(record[2] for record in inside)
                    assert each.oldest_ms <= min(record[2] for record in inside)
            count += len(found.ranges)
        return count


@pytest.fixture
def site(fakes):
    return Site(fakes)


def test_range_covers_closed_segments_without_the_key(site):
    for keys in (b"ab", b"cd", b"ef", b"ab"):
        site.append(*(b"%c" % key for key in keys), None)
        site.roll()
    site.append(b"c")
    site.build()
    assert len(site.files) == 4
    assert [each[:2] for each in site.without(b"c").ranges] == [(0, 3), (6, 12)]
    assert [each[:2] for each in site.without(b"a", b"c").ranges] == [(6, 9)]
    assert [each[:2] for each in site.without(b"c", start=1).ranges] == [(6, 12)]
    assert site.check()


def test_range_has_whole_blocks_of_a_large_segment(fakes):
    site = Site(fakes, CONFIG._replace(segment_bytes=1 << 30))
    for number in range(40):
        site.append(b"key%d" % number, value=bytes(100_000))
    site.roll()
    site.build()
    ranges = site.without(b"key17").ranges
    assert [each[:2] for each in ranges] == [(0, 11), (22, 40)]
    assert sum(each.records for each in ranges) == 29


def test_blocks_of_transactions_are_hidden_from_committed_readers(site):
    site.append(b"a")
    site.roll()
    site.append(b"b", producer_id=1)
    site.store(
        end_transaction_marker(
            commit=False,
            timestamp_ms=site.clock.now_ms,
            producer_id=1,
            producer_epoch=0,
            coordinator_epoch=0,
            base_offset=2,
        )
    )
    site.roll()
    site.build()
    assert [each[:3] for each in site.without(b"c").ranges] == [(0, 3, 2)]
    assert [each[:3] for each in site.without(b"c", with_transactions=False).ranges] == [(0, 1, 1)]


def test_filter_of_former_records_is_ignored(site):
    site.append(b"a")
    site.append(b"b")
    site.roll()
    site.build()
    [path] = site.files
    former = site.disk.read_bytes(path)
    site.log.truncate_to(1)
    assert site.files == []
    site.append(b"c")
    site.roll()
    site.disk.write_bytes(path, former)  # Apache Kafka truncates without removing it
    assert site.without(b"c").ranges == []
    site.build()
    assert [each[:2] for each in site.without(b"b").ranges] == [(0, 2)]
    assert site.without(b"c").ranges == []


def test_files_go_with_their_segments(site):
    for key in (b"a", b"a", b"b"):
        site.append(key)
        site.roll()
    site.build()
    assert len(site.files) == 3
    site.compact()
    site.build()
    assert len(site.files) == len(site.log.segments) - 1
    site.log.maybe_increment_log_start_offset(3)
    run_retention(site.manager)
    assert site.files == []


def test_segment_with_old_messages_has_no_filter(site):
    messages = bytearray()
    append_message_set(messages, [Message(0, site.clock.now_ms, b"a", b"v")], 1, NONE)
    site.store(messages)
    site.roll()
    site.append(b"b")
    site.roll()
    site.build()
    assert site.log.segments[0].key_filter_state == KEY_FILTER_REFUSED
    assert [each[:2] for each in site.without(b"c").ranges] == [(1, 2)]


def damaged(data: bytes, place: int) -> bytes:
    place %= len(data)
    return data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]


appends = st.tuples(
    st.just("append"),
    st.lists(st.sampled_from([None, *KEYS]), min_size=1, max_size=3),
    st.sampled_from(["none", "lz4"]),
)
steps = st.one_of(
    appends,
    appends,
    appends,
    st.tuples(st.just("truncate"), st.integers(0, 30)),
    st.tuples(st.just("delete"), st.integers(0, 30)),
    st.tuples(st.sampled_from(["flip", "cut", "remove"]), st.integers(0, 1 << 16)),
    st.tuples(st.sampled_from(["roll", "build", "build", "compact", "open"])),
)


@settings(max_examples=size(60, 600), deadline=None)
@given(st.lists(steps, max_size=30))
def test_no_range_has_a_record_with_its_key(fakes, made):
    site = Site(fakes)
    for step in made:
        match step:
            case "append", keys, codec:
                site.append(*keys, codec=codec)
            case "truncate", offset:
                if site.log.log_start_offset <= offset < site.log.log_end_offset:
                    site.log.truncate_to(offset)
            case "delete", offset:
                if offset <= site.log.log_end_offset:
                    site.log.maybe_increment_log_start_offset(offset)
                run_retention(site.manager)
            case ("open",):
                site.manager.shutdown()
                site.open()
            case (("roll" | "build" | "compact" as action),):
                getattr(site, action)()
            case action, place if site.files:
                path = site.files[place % len(site.files)]
                data = site.disk.read_bytes(path)
                if action == "remove":
                    site.disk.unlink(path)
                else:
                    site.disk.write_bytes(path, damaged(data, place) if action == "flip" else data[: place % len(data)])
        site.check()
    site.roll()
    site.build()
    site.check()
    site.build()  # those that the check before found to be damaged
    closed = [segment for segment in site.log.segments[:-1] if segment.data.size_bytes]
    assert len(site.files) == len(closed)
