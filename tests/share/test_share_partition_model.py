"""Random histories of a share partition, compared with a model of single offsets after each step.

The world has a log that grows, a store that may fail, succeed late or serve another leader, and members that acquire,
acknowledge, renew, time out and disconnect. In half of the histories the group has a dead-letter topic. A failing seed
is an argument of the test.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from tests.scale import size

from ottla.common.errors import KafkaError
from ottla.common.kafka.share_state import RecordState
from ottla.record.batch import CONTROL_MASK
from ottla.share.acknowledgements import AcknowledgeType, RecordDecision
from ottla.share.acquisition import AcquireLimits
from ottla.share.retry_backoff import RetryBackoff
from ottla.share.settings import ShareSettings
from ottla.share.share_partition import SharePartition, StateWrite
from ottla.storage.log.batch_extents import BatchExtent

from .builders import KEY, Store

MEMBERS = ("a", "b", "c")
LIMIT, WINDOW, LOCK_MS = 4, 40, 100
RETRY = RetryBackoff(first_ms=60, multiplier=1.5, max_ms=150)
SETTLED = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class ModelRecord:
    """One offset."""

    def __init__(self, state: RecordState = RecordState.AVAILABLE, count: int = 0) -> None:
        self.state = state
        self.count = count
        self.owner = ""
        self.until_ms = 0
        self.failed_ms = 0
        """Time since when the record is available again."""
        self.pending: RecordState | None = None
        self.in_write = False

    def release(self, failed: RecordState, now_ms: int) -> None:
        self.state = failed if self.count >= LIMIT else RecordState.AVAILABLE
        self.owner = ""
        self.failed_ms = now_ms


class World:
    """Machine and model side by side."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        retry = RETRY if seed % 3 == 0 else None
        self.settings = ShareSettings(LIMIT, WINDOW, LOCK_MS, dead_letters=bool(seed % 2), retry=retry)
        self.failed = RecordState.ARCHIVING if seed % 2 else RecordState.ARCHIVED
        """State of a record that is not delivered again."""
        self.dead_letters: set[int] = set()
        self.store = Store()
        self.batches: list[BatchExtent] = []
        self.real: set[int] = set()
        self.log_end = self.log_start = 0
        self.now_ms = 0
        self.fates: dict[int, str] = {}
        """Why an offset need not be delivered any more."""
        self.total: dict[int, int] = {}
        """Deliveries over all leaders."""
        self.uncertain: set[int] = set()
        """Offsets in writes whose outcome the leader took for a failure."""
        self.write: StateWrite | None = None
        self.lead()

    def lead(self) -> None:
        """A new leader reads the state. It has no locks."""
        state = self.store.read()
        start = max(state.start_offset, 0)
        self.machine = SharePartition(KEY, state, start, 0, self.settings, self.now_ms)
        self.machine.move_log_start(self.log_start)
        self.write = None
        self.deliveries: dict[int, int] = {}
        self.model: dict[int, ModelRecord] = {}
        for run in self.machine.in_flight():
            for offset in range(run.first, run.last + 1):
                count, stored = self.store.records.get(offset, (0, RecordState.AVAILABLE))
                assert (run.state, run.delivery_count) == (stored, count), "the loaded state is the stored one"
                self.model[offset] = ModelRecord(run.state, run.delivery_count)
                self.model[offset].failed_ms = self.now_ms
        self.start = self.machine.start_offset

    # --- steps -----------------------------------------------------------------------------------------------------

    def append(self) -> None:
        if self.rng.random() < 0.2:
            self.log_end += self.rng.randrange(1, 5)  # a hole
        count = self.rng.randrange(1, 12)
        control = self.rng.random() < 0.15
        first, self.log_end = self.log_end, self.log_end + (1 if control else count)
        attributes = CONTROL_MASK if control else 0
        self.batches.append(BatchExtent(0, 1, first, self.log_end - 1, attributes, -1))
        if not control:
            self.real.update(range(first, self.log_end))

    def acquire(self) -> None:
        self.machine.expire(self.now_ms)
        self.expire_model()
        offset = self.machine.next_fetch_offset()
        waiting = self.waiting()
        available = [
            key for key, record in self.model.items() if record.state is RecordState.AVAILABLE and key not in waiting
        ]
        assert offset == (min(available) if available else self.end if self.end < self.start + WINDOW else None)
        if offset is None:
            return
        read = [batch for batch in self.batches if batch.last_offset >= offset][: self.rng.randrange(1, 5)]
        limits = AcquireLimits(self.rng.randrange(1, 20), self.rng.randrange(1, 20), self.rng.random() < 0.5)
        member = self.rng.choice(MEMBERS)
        ranges = self.machine.acquire(member, offset, read, (), limits, self.now_ms)
        self.expire_model()
        taken = 0
        end = self.end
        for first, last, count in ranges:
            for each in range(first, last + 1):
                assert each in self.real
                assert each < self.start + WINDOW
                record = self.model.setdefault(each, ModelRecord())
                assert record.state is RecordState.AVAILABLE, "a record has one owner"
                assert each not in waiting
                assert each not in self.dead_letters, "a record with a dead letter is not delivered"
                record.count += 1
                assert record.count == count
                record.state, record.owner, record.until_ms = RecordState.ACQUIRED, member, self.now_ms + LOCK_MS
                self.deliveries[each] = self.deliveries.get(each, 0) + 1
                self.total[each] = self.total.get(each, 0) + 1
                assert self.deliveries[each] <= LIMIT
                taken += 1
        if limits.record_limit:
            assert taken <= limits.max_records
        for each in range(min(offset, end), self.machine.end_offset):
            record = self.model.setdefault(each, ModelRecord())
            if each not in self.real and record.state is RecordState.AVAILABLE and self.is_archived(each):
                record.state = RecordState.ARCHIVED
        if read and not ranges:
            assert self.machine.next_fetch_offset() != offset, "an acquisition makes progress"

    def waiting(self) -> set[int]:
        """Return the records in back-off: all that failed within the delay, none after the delay and its jitter."""
        found = {
            offset: run.until_ms
            for run in self.machine.in_flight()
            if run.state is RecordState.AVAILABLE and run.until_ms
            for offset in range(run.first, run.last + 1)
        }
        for offset, record in self.model.items():
            base_ms = RETRY.base_ms(record.count) if self.settings.retry is not None else 0
            if record.state is RecordState.AVAILABLE and self.now_ms < record.failed_ms + base_ms:
                assert record.failed_ms + base_ms <= found[offset] <= record.failed_ms + base_ms * 1.2
            elif offset in found:
                assert self.now_ms < found[offset] <= record.failed_ms + base_ms * 1.2
        return set(found)

    def is_archived(self, offset: int) -> bool:
        if offset < self.machine.start_offset:
            return True
        return any(
            run.first <= offset <= run.last and run.state is RecordState.ARCHIVED for run in self.machine.in_flight()
        )

    def acknowledge(self) -> None:
        member = self.rng.choice(MEMBERS)
        self.expire_model()
        offsets = sorted(self.rng.sample(range(self.start, self.end + 1), min(6, self.end + 1 - self.start)))
        if self.rng.random() < 0.8:  # mostly records that the member holds
            held = [key for key, record in self.model.items() if record.owner == member and record.pending is None]
            offsets = sorted(self.rng.sample(held, min(len(held), self.rng.randrange(1, 8))))
        decisions = [RecordDecision(each, each, self.rng.choice(list(AcknowledgeType))) for each in offsets]
        allowed = True
        for first, _, kind in decisions:
            record = self.model.get(first)
            held_by_member = record is not None and record.owner == member and record.pending is None
            is_gap = record is not None and record.state in (*SETTLED, self.failed) and kind is AcknowledgeType.GAP
            allowed = allowed and (held_by_member or is_gap)
        try:
            self.machine.acknowledge(member, decisions, self.now_ms)
        except KafkaError:
            assert not allowed
            return
        assert allowed
        for first, _, kind in decisions:
            record = self.model[first]
            if record.state is not RecordState.ACQUIRED:
                continue
            if kind is AcknowledgeType.RENEW:
                record.until_ms = self.now_ms + LOCK_MS
            elif kind is AcknowledgeType.ACCEPT:
                record.pending = RecordState.ACKNOWLEDGED
            elif kind is AcknowledgeType.RELEASE:
                record.pending = self.failed if record.count >= LIMIT else RecordState.AVAILABLE
            else:
                record.pending = RecordState.ARCHIVED if kind is AcknowledgeType.GAP else self.failed
                if record.pending is RecordState.ARCHIVED:
                    self.fates[first] = "refused by a member"
            if kind is AcknowledgeType.ACCEPT:
                self.fates[first] = "accepted"

    def release_member(self) -> None:
        member = self.rng.choice(MEMBERS)
        self.machine.release_member(member, self.now_ms)
        for record in self.model.values():
            if record.owner == member:
                if record.pending is None:
                    record.release(self.failed, self.now_ms)
                else:
                    record.until_ms = self.now_ms

    def pass_time(self) -> None:
        self.now_ms += self.rng.randrange(1, 80)
        self.machine.expire(self.now_ms)
        self.expire_model()

    def expire_model(self) -> None:
        for record in self.model.values():
            if record.state is RecordState.ACQUIRED and record.pending is None and record.until_ms <= self.now_ms:
                record.release(self.failed, self.now_ms)

    def write_dead_letters(self) -> None:
        due = self.machine.due_dead_letters(self.rng.randrange(1, 8))
        assert [each.offset for each in due] == sorted(each.offset for each in due)
        for offset, count, _ in due:
            assert self.model[offset].count == count
            if offset not in self.uncertain:
                assert self.store.records[offset] == (count, RecordState.ARCHIVING), "ARCHIVING is stored before"
            self.dead_letters.add(offset)
            self.fates[offset] = "dead letter"
        archived = [each.offset for each in due if self.rng.random() < 0.8]
        self.machine.archive(archived)
        for offset in archived:
            self.model[offset].pending = RecordState.ARCHIVED

    def begin_write(self) -> None:
        write = self.machine.begin_write()
        if write is None:
            if self.write is None:
                assert not any(record.pending is not None for record in self.model.values())
            return
        assert self.write is None, "one write at a time"
        self.write = write
        for record in self.model.values():
            record.in_write = record.pending is not None

    def end_write(self) -> None:
        if self.write is None:
            return
        write, self.write = self.write, None
        outcome = self.rng.choice(("stored", "stored", "failed", "stored late"))
        if outcome != "failed":
            self.store.write(write)
        if outcome == "stored late":
            self.uncertain.update(
                offset for batch in write.batches for offset in range(batch.first_offset, batch.last_offset + 1)
            )
        self.machine.end_write(self.now_ms, stored=outcome == "stored")
        for record in self.model.values():
            if record.in_write:
                record.in_write = False
                if record.state is RecordState.ARCHIVING and outcome != "stored":
                    continue  # the next write stores it
                pending, record.pending = record.pending, None
                if outcome == "stored" and pending is not None:
                    record.state, record.owner, record.failed_ms = pending, "", self.now_ms
        if outcome == "stored":
            if not self.uncertain:
                assert self.store.start_offset <= self.machine.start_offset
            for run in self.machine.in_flight():
                if run.state is not RecordState.ACQUIRED and not run.dirty:
                    for offset in range(run.first, run.last + 1):
                        if offset not in self.uncertain and offset >= self.store.start_offset:
                            stored = self.store.records.get(offset, (0, RecordState.AVAILABLE))
                            assert stored == (run.delivery_count, run.state), "stored and present state are equal"

    def change_leader(self) -> None:
        if self.write is not None and self.rng.random() < 0.5:
            self.store.write(self.write)
        self.lead()

    def move_log_start(self) -> None:
        self.log_start = min(self.log_end, self.log_start + self.rng.randrange(0, 6))
        self.machine.move_log_start(self.log_start)

    # --- checks ----------------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        return max(self.model, default=self.start - 1) + 1

    def check(self) -> None:
        for offset in [offset for offset in self.model if offset < self.log_start]:
            del self.model[offset]
        start = max(self.start, self.log_start)
        while start in self.model and self.model[start].state in SETTLED and self.model[start].pending is None:
            del self.model[start]
            start += 1
        assert start >= self.start, "the start offset never falls"
        self.start = start
        assert (self.machine.start_offset, self.machine.end_offset) == (start, max(self.end, start))
        seen = {}
        for run in self.machine.in_flight():
            for offset in range(run.first, run.last + 1):
                seen[offset] = (run.state, run.delivery_count, run.member_id, run.pending)
        wanted = {
            offset: (record.state, record.count, record.owner, record.pending) for offset, record in self.model.items()
        }
        assert seen == wanted
        runs = self.machine.in_flight()
        assert all(before.last + 1 == run.first for before, run in pairwise(runs))

    def drain(self) -> None:
        """All locks end; one member then accepts everything that is left."""
        if self.write is not None:
            self.machine.end_write(self.now_ms, stored=False)
            self.write = None
        accept = AcknowledgeType.ACCEPT
        for _ in range(2000):
            self.now_ms += 10 * LOCK_MS
            self.machine.expire(self.now_ms)
            offset = self.machine.next_fetch_offset()
            read = [] if offset is None else [batch for batch in self.batches if batch.last_offset >= offset]
            if offset is not None and read:
                limits = AcquireLimits(1000, 10, False)
                for first, last, _ in self.machine.acquire("last", offset, read, (), limits, self.now_ms):
                    self.machine.acknowledge("last", [RecordDecision(first, last, accept)], self.now_ms)
                    self.fates.update(dict.fromkeys(range(first, last + 1), "accepted"))
            due = self.machine.due_dead_letters(100)
            self.machine.archive([each.offset for each in due])
            self.fates.update((each.offset, "dead letter") for each in due)
            write = self.machine.begin_write()
            if write is None and not read and not due:
                break
            if write is not None:
                self.store.write(write)
                self.machine.end_write(self.now_ms, stored=True)
        lost = [
            offset
            for offset in self.real
            if offset >= self.log_start
            and offset not in self.fates
            and (self.settings.dead_letters or self.total.get(offset, 0) < LIMIT)
        ]
        assert not lost, "no record is lost"
        assert self.machine.start_offset >= max(self.real, default=-1) + 1


STEPS = (
    *["append"] * 3,
    *["acquire"] * 5,
    *["acknowledge"] * 5,
    *["begin_write"] * 4,
    *["end_write"] * 4,
    *["pass_time"] * 2,
    *["write_dead_letters"] * 2,
    "release_member",
    "move_log_start",
    "change_leader",
)


def run(seed: int, steps: int = 250) -> None:
    world = World(seed)
    for _ in range(steps):
        getattr(world, world.rng.choice(STEPS))()
        world.check()
    world.drain()


@pytest.mark.parametrize("seed", range(size(30, 1000)))
def test_history_matches_the_model(seed: int) -> None:
    run(seed)
