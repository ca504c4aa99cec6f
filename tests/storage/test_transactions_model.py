"""Transactions of a log compared with a list: random batches, markers, truncations, stops, kills and power failures.

The list contains every batch and marker. Open and aborted transactions, the next batch of each producer, and the view
of a read_committed consumer are recomputed from it each time.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scale import size

from ottla.record.batch import iter_batches
from ottla.record.control import EndMarker
from ottla.record.transactions import TransactionFilter
from ottla.storage.files.log_config import LogConfig
from ottla.storage.repair.scrub_reading import SegmentReading
from ottla.storage.segment.transaction_index import ENTRY

from .maintenance import run_retention, write_checkpoints

CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=150, retention_bytes=4000, retention_ms=-1)

OLDER, NEWER, PLAIN = 5, 6, 7
"""Producers: one with a constant epoch (transaction version 1), one with rising epochs (2), one without
transactions.
"""

PRODUCERS = st.sampled_from([OLDER, NEWER])
WRITES = (
    st.tuples(st.just("write"), PRODUCERS, st.integers(1, 4)),
    st.tuples(st.just("write"), PRODUCERS, st.integers(1, 4)),
    st.tuples(st.just("write"), st.just(PLAIN), st.integers(1, 4)),
    st.tuples(st.just("commit"), PRODUCERS, st.just(0)),
    st.tuples(st.just("abort"), PRODUCERS, st.just(0)),
    st.tuples(st.just("abort"), PRODUCERS, st.just(0)),
    st.tuples(st.just("end_all"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("marker_again"), st.just(0), st.just(0)),
    st.tuples(st.just("replicate"), st.integers(0, 1000), st.just(0)),
    st.tuples(st.just("roll"), st.just(0), st.just(0)),
    st.tuples(st.just("flush"), st.just(0), st.just(0)),
    st.tuples(st.just("checkpoint"), st.just(0), st.just(0)),
    st.tuples(st.just("truncate"), st.integers(0, 1000), st.just(0)),
    st.tuples(st.just("restart"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("stop"), st.just(0), st.just(0)),
    st.tuples(st.just("kill"), st.just(0), st.just(0)),
    st.tuples(st.just("power_failure"), st.integers(1, 10_000), st.just(0)),
    st.tuples(st.just("damage"), st.integers(0, 3), st.just(0)),
)
SNAPSHOTS_LOST = st.one_of(*WRITES, st.tuples(st.just("kill_and_lose_snapshot"), st.just(0), st.just(0)))
RECORDS_DELETED = st.one_of(
    *WRITES,
    st.tuples(st.just("delete_records"), st.integers(0, 1000), st.just(0)),
    st.tuples(st.just("retention"), st.just(0), st.just(0)),
)


class Entry(NamedTuple):
    """One batch of the list. `outcome` is None except for markers: whether they committed."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    outcome: bool | None = None


class Aborted(NamedTuple):
    """An entry of a fetch response, with the additional fields of the index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Oracle:
    """State derived from the whole list."""

    def __init__(self, entries: list[Entry]) -> None:
        self.open: dict[int, int] = {}
        self.decided: list[tuple[int, int]] = []  # first offset, offset of the marker
        self.aborted: list[Aborted] = []
        self.producers: dict[int, tuple[int, int]] = {}  # epoch, last sequence
        hidden: dict[int, list[Entry]] = {}
        self.visible: list[Entry] = []
        for entry in entries:
            producer_id = entry.producer_id
            epoch, sequence = self.producers.get(producer_id, (-1, -1))
            if entry.outcome is None:
                count = entry.last_offset - entry.base_offset
                self.producers[producer_id] = (entry.producer_epoch, entry.base_sequence + count)
                if producer_id == PLAIN:
                    self.visible.append(entry)
                else:
                    self.open.setdefault(producer_id, entry.base_offset)
                    hidden.setdefault(producer_id, []).append(entry)
                continue
            self.producers[producer_id] = (entry.producer_epoch, sequence if epoch == entry.producer_epoch else -1)
            first = self.open.pop(producer_id, None)
            if first is None:
                continue
            self.decided.append((first, entry.base_offset))
            written = hidden.pop(producer_id)
            if entry.outcome:
                self.visible += written
            else:
                stable = min(self.open.values(), default=entry.base_offset + 1)
                self.aborted.append(Aborted(producer_id, first, entry.base_offset, stable))

    def stable(self, high_watermark: int, start: int, decided_from: int) -> int:
        """Return the last stable offset, including decided transactions with a marker at or after `decided_from`."""
        waiting = [first for first, marker in self.decided if marker >= max(high_watermark, decided_from)]
        return max(min([high_watermark, *self.open.values(), *waiting]), start)


class Machine:
    """One partition on a crash disk, and the list it must equal."""

    def __init__(self, fakes, *, whole: bool = True) -> None:
        """`whole`: no records are deleted at the start, so that the log has all of the state."""
        self.fakes = fakes
        self.whole = whole
        self.clock = fakes.Clock()
        self.disk = fakes.Disk(self.clock)
        self.manager = fakes.open_manager(self.disk, self.clock, config=CONFIG)
        self.entries: list[Entry] = []
        self.take_up(self.manager.create_log("t", 0, bytes(range(16))))
        self.high_watermark = 0
        self.durable_end = 0

    def take_up(self, log) -> None:
        self.log = log
        log.offsets.begin_high_watermark(log.log_start_offset)
        self.high_watermark = log.high_watermark
        self.decided_from = log.log_end_offset
        self.start = log.log_start_offset

    @property
    def end(self) -> int:
        return self.log.log_end_offset

    # -- operations ----------------------------------------------------------------------------------------------------

    def write(self, producer_id: int, count: int) -> None:
        entry = self.log.producers.get(producer_id)
        epoch, sequence = (0, -1) if entry is None else (entry.producer_epoch, entry.last_sequence)
        self.clock.now_ms += 10
        batch = self.fakes.make_batch(
            self.clock.now_ms,
            count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence + 1,
            is_transactional=producer_id != PLAIN,
        )
        guard = None
        if producer_id != PLAIN:
            guard = self.log.begin_verification(
                producer_id, epoch, sequence + 1, supports_epoch_bump=producer_id == NEWER
            )
            assert (guard is None) == (entry is not None and entry.current_txn_first_offset >= 0)
        result = self.log.append_as_leader(batch, 0, len(batch), 0, guard=guard)
        assert not result.duplicate
        self.entries.append(Entry(result.base_offset, result.last_offset, producer_id, epoch, sequence + 1))
        again = self.log.append_as_leader(batch, 0, len(batch), 0)
        assert again.duplicate
        assert (again.base_offset, again.last_offset) == (result.base_offset, result.last_offset)

    def commit(self, producer_id: int, _: int) -> None:
        self.end_transaction(producer_id, committed=True)

    def abort(self, producer_id: int, _: int) -> None:
        self.end_transaction(producer_id, committed=False)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        if producer_id in self.log.producers.transactions.open_transactions():
            epoch = self.log.producers.get(producer_id).producer_epoch
            self.marker(producer_id, epoch + (producer_id == NEWER), committed=committed)

    def end_all(self, committed: int, _: int) -> None:
        """End all open transactions by one write: bit n decides whether the n-th commits."""
        ends = [
            EndMarker(
                producer_id,
                self.log.producers.get(producer_id).producer_epoch + (producer_id == NEWER),
                1,
                bool(committed >> number & 1),
                2 if producer_id == NEWER else 1,
            )
            for number, producer_id in enumerate(self.log.producers.transactions.open_transactions())
        ]
        if ends:
            self.markers(ends)

    def marker(self, producer_id: int, epoch: int, *, committed: bool) -> None:
        self.markers([EndMarker(producer_id, epoch, 1, committed, 2 if producer_id == NEWER else 1)])

    def markers(self, ends: list[EndMarker]) -> None:
        for end in ends:
            self.log.check_marker(end)
        result = self.log.writer.append_end_markers(ends, 0)
        assert result.last_offset - result.base_offset == len(ends) - 1
        for offset, end in enumerate(ends, result.base_offset):
            self.entries.append(Entry(offset, offset, end.producer_id, end.producer_epoch, -1, end.committed))

    def marker_again(self, *_: int) -> None:
        entry = self.log.producers.get(NEWER)
        if entry is not None and entry.current_txn_first_offset < 0:
            self.marker(NEWER, entry.producer_epoch, committed=True)

    def replicate(self, choice: int, _: int) -> None:
        ends = [entry.last_offset + 1 for entry in self.entries if entry.last_offset >= self.high_watermark]
        if ends:
            self.high_watermark = self.log.offsets.high_watermark = ends[choice % len(ends)]

    def truncate(self, choice: int, _: int) -> None:
        ends = [entry.base_offset for entry in self.entries if entry.base_offset >= self.start]
        if ends:
            end = ends[choice % len(ends)]
            self.log.truncate_to(end)
            self.cut(end)
            self.high_watermark = min(self.high_watermark, end)
            self.decided_from = end

    def restart(self, by: int, _: int) -> None:
        self.start = self.end - by if self.end >= by else self.end
        self.log.truncate_fully_and_start_at(self.start)
        self.entries = []
        self.high_watermark = self.decided_from = self.start
        self.durable_end = 0

    def cut(self, end: int) -> None:
        self.entries = [entry for entry in self.entries if entry.last_offset < end]
        self.durable_end = min(self.durable_end, end)
        self.start = min(self.start, end)

    def delete_records(self, choice: int, _: int) -> None:
        if self.high_watermark > self.start:
            self.start += choice % (self.high_watermark - self.start + 1)
            self.log.delete_records(self.start)
            assert self.log.high_watermark == self.high_watermark

    def retention(self, *_: int) -> None:
        run_retention(self.manager)
        self.start = self.log.log_start_offset

    def roll(self, *_: int) -> None:
        self.log.roll()

    def flush(self, *_: int) -> None:
        self.log.flush()
        self.durable_end = self.end

    def checkpoint(self, *_: int) -> None:
        write_checkpoints(self.manager)

    def stop(self, *_: int) -> None:
        self.manager.shutdown()
        assert self.disk.open_count == 0
        self.durable_end = self.end
        self.reopen(self.end)

    def kill(self, *_: int) -> None:
        self.disk.locked.clear()
        self.disk.open_count = 0
        self.reopen(self.end)

    def power_failure(self, seed: int, _: int) -> None:
        self.disk.crash(self.fakes.Rng(seed))
        self.reopen(self.durable_end)

    def kill_and_lose_snapshot(self, *_: int) -> None:
        for name in sorted(name for name in self.disk.listdir("/data/t-0") if name.endswith(".snapshot"))[-1:]:
            self.disk.write_bytes(f"/data/t-0/{name}", b"nonsense")
        self.kill()

    def reopen(self, durable_end: int) -> None:
        self.manager = self.fakes.open_manager(self.disk, self.clock, config=CONFIG)
        log = self.manager.get_log("t", 0)
        if log is None:
            assert durable_end == 0
            log = self.manager.create_log("t", 0, bytes(range(16)))
        assert durable_end <= log.log_end_offset
        self.cut(log.log_end_offset)
        self.take_up(log)

    def damage(self, how: int, _: int) -> None:
        """Write into, or remove, an index of aborted transactions that is not open."""
        for segment in self.log.segments:
            index = segment.aborted.index
            if index is None or not index.entry_count or not index.has_file or segment.data.size_bytes == 0:
                continue
            index.close()
            index.__init__(segment._folder, segment.base_offset)
            path, data = index.path, self.disk.read_bytes(index.path)
            assert index.take_up(len(data))
            if how == 0:
                self.disk.unlink(path)
            else:
                self.disk.write_bytes(path, (b"\xff" * len(data), data[: ENTRY.size // 2], bytes(len(data)))[how - 1])
            offset = max(segment.base_offset, self.start)
            if offset < self.end:
                read = self.log.read(offset, 10_000, max_offset=self.end)
                self.log.aborted.within(offset, read, self.end)
                read.records.release()

    # -- invariants --------------------------------------------------------------------------------------------------

    def read_committed(self, offset: int) -> list[int]:
        """Return the base offsets of the data batches that a consumer sees from `offset` on."""
        log, seen = self.log, []
        stable = log.last_stable_offset(self.high_watermark)
        while offset < stable:
            found = log.read(offset, 400, max_offset=stable)
            assert found.records is not None
            listed = log.aborted.within(offset, found, stable)
            transactions = TransactionFilter([Aborted(producer_id, first, 0, 0) for producer_id, first in listed])
            batches = list(iter_batches(found.records.read_all()))
            found.records.release()
            assert len(set(listed)) == len(listed)
            if self.whole:
                aborted = [one for one in Oracle(self.entries).aborted if one.last_offset >= offset]
                allowed = {one[:2] for one in aborted if one.first_offset < stable}
                needed = {one for one in allowed if one[1] <= batches[-1].last_offset}
                assert needed <= set(listed) <= allowed
            seen += [batch.base_offset for batch in batches if transactions.passes(batch)]
            offset = batches[-1].next_offset
        return seen

    def check(self) -> None:
        oracle = Oracle(self.entries)
        stable = self.log.last_stable_offset(self.high_watermark)
        # A transaction decided before a start or a truncation may be unknown if a snapshot reaches beyond its marker,
        # and a deleted one if no snapshot has it.
        left = oracle if self.whole else Oracle([entry for entry in self.entries if entry.last_offset >= self.start])
        at_least = oracle.stable(self.high_watermark, self.start, 0)
        at_most = left.stable(self.high_watermark, self.start, self.decided_from)
        assert at_least <= stable <= at_most
        visible = sorted(entry.base_offset for entry in oracle.visible if self.start <= entry.last_offset < stable)
        assert self.read_committed(self.start) == visible
        if self.whole:
            self.check_state(oracle)

    def check_state(self, oracle: Oracle) -> None:
        log = self.log
        assert log.producers.transactions.open_transactions() == oracle.open
        assert list(log.producers.transactions.open_transactions().values()) == sorted(oracle.open.values())
        found = {
            producer_id: (entry.producer_epoch, entry.last_sequence, entry.current_txn_first_offset)
            for producer_id, entry in log.producers.entries().items()
        }
        assert found == {
            producer_id: (*known, oracle.open.get(producer_id, -1)) for producer_id, known in oracle.producers.items()
        }
        bases = [*log.segments.base_offsets, 1 << 62]
        for number, segment in enumerate(log.segments):
            index = segment.aborted.index
            entries = [] if index is None else [index.unpack(at)[1:] for at in range(index.entry_count)]
            assert entries == [one for one in oracle.aborted if bases[number] <= one.last_offset < bases[number + 1]]
            if entries:
                assert self.disk.exists(f"/data/t-0/{segment.base_offset:020d}.txnindex")

    def run(self, operations) -> None:
        for name, first, second in operations:
            getattr(self, name)(first, second)
            self.check()
        if self.whole and "damage" not in [name for name, _, _ in operations]:
            self.check_indexes()

    def check_indexes(self) -> None:
        """The scrubber reports nothing about undamaged indexes."""
        seen = None
        for number in range(len(self.log.segments)):
            reading = SegmentReading(self.log, number, was_cleaned=False, seen_before=seen)
            reading.read(1 << 20)
            reading.close()
            seen = reading.seen_behind
            assert (reading.damages, reading.aborted_problem) == ([], "")


@pytest.mark.promise("T4")
@given(st.lists(SNAPSHOTS_LOST, min_size=5, max_size=40))
@settings(max_examples=size(12, 120), report_multiple_bugs=False, deadline=None)
def test_transactions_equal_a_list_though_snapshots_are_lost(fakes, operations) -> None:
    Machine(fakes).run(operations)


@given(st.lists(RECORDS_DELETED, min_size=5, max_size=40))
@settings(max_examples=size(12, 120), report_multiple_bugs=False, deadline=None)
def test_transactions_equal_a_list_though_records_are_deleted(fakes, operations) -> None:
    Machine(fakes, whole=False).run(operations)


WRITE = ("write", OLDER, 1)


def test_truncation_retains_open_transaction_at_log_start(fakes) -> None:
    more, deleted = ("write", OLDER, 1), ("delete_records", 1, 0)
    Machine(fakes, whole=False).run([("write", OLDER, 2), ("replicate", 0, 0), more, deleted, ("truncate", 0, 0)])


@pytest.mark.parametrize("last", ["stop", "kill"])
def test_transaction_over_many_segments_is_listed_in_first(fakes, last) -> None:
    machine = Machine(fakes)
    machine.run([WRITE, ("roll", 0, 0), ("write", PLAIN, 1), ("roll", 0, 0), ("abort", OLDER, 0), (last, 0, 0)])
    machine.high_watermark = machine.log.offsets.high_watermark = machine.end
    machine.check()
    assert machine.read_committed(0) == [1]
