"""State machine of a share partition on the partition's leader (KIP-932, "In-flight records").

A record is AVAILABLE, ACQUIRED by one member until its lock ends, or settled (ACKNOWLEDGED, ARCHIVED). In a group with
a dead-letter topic a failed record is ARCHIVING until its dead letter is durable (KIP-1191). The first offset that is
not settled is `start_offset`, the first that was never acquired is `end_offset`. The offsets between them are the
window, which `share.partition.max.record.locks` bounds.

An acknowledgement is pending until it is stored: other members see the records as acquired. `begin_write` returns the
changes to store, one write at a time, and `end_write` commits or reverts them. The end of a lock, the release of a
member and archiving take effect at once; they are part of the next write, and of further ones until one succeeds.

With a back-off, an available record that was delivered before waits for its next delivery (`OffsetRun.until_ms`). Only
the delivery count is stored, so a new leader starts the wait again. With a rate, `DeliveryBucket` limits deliveries.
`next_expiry_ms` is the time when `expire` has something to do: a lock or a wait ends.

Invariants:
- A record has one owner by the leader's clock, and at most `delivery_count_limit` deliveries in a leader epoch.
- `start_offset` never falls, and no record is dropped below it that is not settled, except below the log start.
- After a successful write the stored state equals the one here, except for records that are acquired.
- After a failed delivery a record is not delivered before its back-off has passed, by the clock of each leader.
- A dead letter is due only after ARCHIVING is stored, so that no later leader delivers the record again.

The time is an argument. Reading the log and calling the persister are in `server.coordination`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.share_state import RecordState, SharePartitionKey, ShareState, StateBatch
from ottla.share.acknowledgements import AcknowledgeType, RecordDecision
from ottla.share.acquisition import AcquiredRange, AcquireLimits, Acquisition
from ottla.share.runs import NO_MEMBER, TERMINAL, OffsetRun, RunList
from ottla.share.settings import ShareSettings
from ottla.storage.log.batch_extents import BatchExtent

if TYPE_CHECKING:
    from ottla.share.delivery_rate import DeliveryBucket, DeliveryRate

NEVER_MS = 1 << 62
_TARGETS = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
}
_STORED = (*TERMINAL, RecordState.ARCHIVING)
"""Stored states that are loaded as they are; any other is AVAILABLE."""


class StateWrite(NamedTuple):
    """State to store, and the number of the write, by which callers await acknowledgements."""

    number: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class DueDeadLetter(NamedTuple):
    """A record that is archived once its dead letter is durable.

    `rejected`: by a member, otherwise its delivery count reached the limit.
    """

    offset: int
    delivery_count: int
    rejected: bool


class SharePartition:
    """A partition as one share group reads it, in one leader epoch."""

    __slots__ = (
        "_archived_below",
        "_available_from",
        "_bucket",
        "_runs",
        "_start_is_new",
        "_write_number",
        "_writing",
        "_writing_archived",
        "expired_count",
        "key",
        "leader_epoch",
        "next_expiry_ms",
        "settings",
        "state_epoch",
    )

    def __init__(
        self,
        key: SharePartitionKey,
        state: ShareState,
        start_offset: int,
        leader_epoch: int,
        settings: ShareSettings,
        now_ms: int,
    ) -> None:
        """`start_offset` is the state's, or the chosen one if the state has none. No record is acquired.

        A chosen offset is stored with the first write: the next leader could choose another one, and skip records.
        Back-offs of records that were delivered before start now, since the time of their failure is not stored.
        """
        self.key = key
        self.settings = settings
        self._start_is_new = state.start_offset != start_offset
        self.state_epoch = state.state_epoch
        self.leader_epoch = leader_epoch
        self._runs = RunList(start_offset)
        self._available_from = start_offset
        self._write_number = 0
        self._writing = False
        self._archived_below: tuple[int, int] | None = None
        """Range of settled offsets that were dropped before they were stored."""
        self._writing_archived: tuple[int, int] | None = None
        self._bucket: DeliveryBucket | None = None
        """Limits deliveries, if the group has a rate."""
        self.next_expiry_ms = NEVER_MS
        """No lock and no wait ends before this time."""
        self.expired_count = 0
        """Records whose locks ended before an acknowledgement."""
        runs = self._runs
        for batch in sorted(state.batches, key=lambda batch: batch.first_offset):
            if batch.last_offset < runs.end:
                continue
            if batch.first_offset > runs.end:
                runs.append(batch.first_offset - 1, RecordState.AVAILABLE, 0)
            loaded = RecordState(batch.state) if batch.state in _STORED else RecordState.AVAILABLE
            run = runs.append(batch.last_offset, loaded, max(batch.delivery_count, 0))
            # The reason is not stored. Apache Kafka assumes the same.
            run.rejected = loaded is RecordState.ARCHIVING and run.delivery_count < settings.delivery_count_limit
        runs.merge(start_offset, runs.end)
        if settings.retry is not None:
            for run in runs.runs:
                if run.state is RecordState.AVAILABLE:
                    self._back_off(run, now_ms)
        self._advance()

    def use(self, settings: ShareSettings, rate: DeliveryRate | None, now_ms: int) -> None:
        """Apply settings of the group, and the rate of this partition, which may have changed.

        Waiting records wait for the new back-off from now on, unless their wait ends before.
        """
        retry = settings.retry
        if retry != self.settings.retry:
            for run in self._runs.runs:
                if run.until_ms and run.state is RecordState.AVAILABLE:
                    delay_ms = 0 if retry is None else retry.delay_ms(self.key, run.first, run.delivery_count)
                    run.until_ms = min(run.until_ms, now_ms + delay_ms)
                    self._expire_at(run.until_ms)
        self.settings = settings
        if rate != (None if self._bucket is None else self._bucket.rate):
            self._bucket = None if rate is None else rate.bucket(now_ms)
            self._expire_with_bucket()

    # --- offsets ---------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """First offset that is not settled."""
        return self._runs.start

    @property
    def end_offset(self) -> int:
        """First offset that was never acquired."""
        return self._runs.end

    @property
    def window_end(self) -> int:
        """First offset that may not be acquired before the start offset moves."""
        return self._runs.start + self.settings.max_record_locks

    def next_fetch_offset(self) -> int | None:
        """Return the first offset that may be acquired; None while the window is full or the rate permits none."""
        if self._bucket is not None and self._bucket.opens_ms is not None:
            return None
        runs = self._runs
        if self._available_from < runs.end:
            for run in runs.overlapping(self._available_from, runs.end - 1):
                if run.state is RecordState.AVAILABLE and not run.until_ms:
                    self._available_from = run.first
                    return run.first
        self._available_from = runs.end
        return runs.end if runs.end < self.window_end else None

    def move_log_start(self, log_start_offset: int) -> None:
        """Drop the records below the log start: they are not delivered again, whatever their state is."""
        if log_start_offset > self._runs.start:
            self._runs.advance(log_start_offset)
            self._advance()

    def in_flight(self) -> Sequence[OffsetRun]:
        """Runs between start and end; the caller does not change them."""
        return self._runs.runs

    # --- acquire ---------------------------------------------------------------------------------------------------

    def acquire(
        self,
        member_id: str,
        from_offset: int,
        batches: Sequence[BatchExtent],
        aborted: Collection[int],
        limits: AcquireLimits,
        now_ms: int,
    ) -> list[AcquiredRange]:
        """Lock available records in `batches`, which were read at `from_offset`, for a member.

        `aborted` are indexes of batches of aborted transactions. Those, control batches and holes between batches are
        archived on the way.
        """
        self.expire(now_ms)
        if from_offset > self._runs.end:
            raise InvariantError(f"records of a share partition are acquired from {from_offset}, which leaves a hole")
        bucket = self._bucket
        if bucket is not None:
            permitted = min(limits.max_records, bucket.available(now_ms))
            limits = limits._replace(max_records=permitted, record_limit=True)
        acquired = Acquisition(self, self._runs, member_id, limits, now_ms + self.settings.lock_duration_ms)
        position = from_offset
        for index, batch in enumerate(batches):
            if acquired.is_full:
                break
            if batch.last_offset < position:
                continue
            if batch.first_offset > position and not self._archive(position, batch.first_offset - 1):
                break
            first = max(batch.first_offset, position)
            if batch.is_control or index in aborted:
                if not self._archive(first, batch.last_offset):
                    break
            elif not acquired.take(first, batch.last_offset):
                break
            position = batch.last_offset + 1
        if acquired.ranges:
            position = max(position, acquired.ranges[-1].last_offset)
            self._expire_at(acquired.lock_until_ms)
            if bucket is not None:
                bucket.take(acquired.taken)
                self._expire_with_bucket()
        self._runs.merge(from_offset, position)
        self._advance()
        return acquired.ranges

    def _archive(self, first: int, last: int) -> bool:
        """Archive available offsets of a range that has no records; returns whether all of it is within the window."""
        runs = self._runs
        first = max(first, runs.start)
        for run in runs.overlapping(first, last):
            if run.state is RecordState.AVAILABLE:
                for part in runs.isolated(max(run.first, first), min(run.last, last)):
                    part.state, part.dirty, part.writing = RecordState.ARCHIVED, True, False
                    part.until_ms = 0
        if last >= runs.end:
            if runs.end >= self.window_end:
                return False
            runs.append(last, RecordState.ARCHIVED, 0).dirty = True
        return True

    def archive_undeliverable(self, run: OffsetRun) -> bool:
        """Archive an available run that was delivered often enough, as after a lower limit; returns whether it was."""
        if run.delivery_count < self.settings.delivery_count_limit:
            return False
        run.state, run.dirty, run.writing = self._failed_state, True, False
        return True

    @property
    def _failed_state(self) -> RecordState:
        """State of a record that is not delivered again although it was not accepted."""
        return RecordState.ARCHIVING if self.settings.dead_letters else RecordState.ARCHIVED

    # --- acknowledge, release, expire ------------------------------------------------------------------------------

    def acknowledge(self, member_id: str, decisions: Sequence[RecordDecision], now_ms: int) -> int:
        """Apply all decisions of a member, or none; returns the number of the write that will store them, or 0.

        Offsets below the start are ignored: they were settled, or deleted from the log. Raises KafkaError
        INVALID_RECORD_STATE for records that the member has not acquired, INVALID_REQUEST for offsets behind them.
        """
        self.expire(now_ms)
        runs = self._runs
        for decision in decisions:
            self._check(member_id, decision)
        stores = False
        for first, last, kind in decisions:
            first = max(first, runs.start)
            if first > last:
                continue
            for run in runs.isolated(first, last):
                if run.state is not RecordState.ACQUIRED:
                    continue
                if kind is AcknowledgeType.RENEW:
                    run.until_ms = now_ms + self.settings.lock_duration_ms
                    continue
                stores = True
                self._decide(run, kind)
        for first, last, _ in decisions:
            runs.merge(first, last)
        return self._write_number + 1 if stores else 0

    def _decide(self, run: OffsetRun, kind: AcknowledgeType) -> None:
        run.writing = False  # a write in progress has the state before the acquisition
        if kind is AcknowledgeType.REJECT:
            run.pending = self._failed_state
            run.rejected = run.pending is RecordState.ARCHIVING
            return
        run.pending = _TARGETS[kind]
        if kind is AcknowledgeType.RELEASE and run.delivery_count >= self.settings.delivery_count_limit:
            run.pending = self._failed_state

    def _check(self, member_id: str, decision: RecordDecision) -> None:
        first, last, kind = decision
        runs = self._runs
        if last >= runs.end:
            if first >= runs.end:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "The records were not acquired.")
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The batch has offsets behind the acquired records.")
        for run in runs.overlapping(first, last):
            if kind is AcknowledgeType.GAP and (run.is_settled or run.state is RecordState.ARCHIVING):
                continue
            if run.state is not RecordState.ACQUIRED or run.pending is not None or run.member_id != member_id:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "The records are not acquired by this member.")

    def release_member(self, member_id: str, now_ms: int) -> bool:
        """Release the records of a member whose session ended; returns whether any changed.

        Delivery counts stay, and a back-off applies: the member may have failed at these records. Pending
        acknowledgements stay too; the locks of reverted ones end at once.
        """
        changed = False
        for run in self._runs.runs:
            if run.state is RecordState.ACQUIRED and run.member_id == member_id:
                if run.pending is None:
                    self._release(run, now_ms)
                    changed = True
                else:
                    run.until_ms = now_ms
        if changed:
            self._settle()
        return changed

    def expire(self, now_ms: int) -> bool:
        """Release the records whose locks ended, and end the waits that are over.

        Returns whether records may have become available.
        """
        if now_ms < self.next_expiry_ms:
            return False
        self.next_expiry_ms = NEVER_MS
        changed = False
        for run in self._runs.runs:
            if run.state is RecordState.ACQUIRED and run.pending is None:
                if run.until_ms <= now_ms:
                    self.expired_count += run.count
                    self._release(run, now_ms)
                    changed = True
                else:
                    self._expire_at(run.until_ms)
            elif run.until_ms and run.state is RecordState.AVAILABLE:
                if run.until_ms <= now_ms:
                    run.until_ms = 0
                    self._available_from = min(self._available_from, run.first)
                    changed = True
                else:
                    self._expire_at(run.until_ms)
        if changed:
            self._settle()
        if self._bucket is not None:
            changed = self._bucket.open_at(now_ms) or changed
            self._expire_with_bucket()
        return changed

    def _expire_at(self, at_ms: int) -> None:
        self.next_expiry_ms = min(self.next_expiry_ms, at_ms)

    def _expire_with_bucket(self) -> None:
        if self._bucket is not None and self._bucket.opens_ms is not None:
            self._expire_at(self._bucket.opens_ms)

    def _release(self, run: OffsetRun, now_ms: int) -> None:
        limit_reached = run.delivery_count >= self.settings.delivery_count_limit
        run.state = self._failed_state if limit_reached else RecordState.AVAILABLE
        run.member_id, run.until_ms = NO_MEMBER, 0
        run.dirty, run.writing = True, False
        self._available_from = min(self._available_from, run.first)
        self._back_off(run, now_ms)

    def _back_off(self, run: OffsetRun, now_ms: int) -> None:
        """Let records wait for their next delivery, if they are available and were delivered before."""
        retry = self.settings.retry
        if retry is not None and run.state is RecordState.AVAILABLE and run.delivery_count:
            run.until_ms = now_ms + retry.delay_ms(self.key, run.first, run.delivery_count)
            self._expire_at(run.until_ms)

    # --- dead letters ----------------------------------------------------------------------------------------------

    @property
    def archiving_count(self) -> int:
        """Number of ARCHIVING records whose dead letters are not known to be durable."""
        return sum(run.count for run in self._runs.runs if run.state is RecordState.ARCHIVING and run.pending is None)

    def due_dead_letters(self, limit: int) -> list[DueDeadLetter]:
        """Return the first records, in order, whose dead letters may be written: ARCHIVING is stored."""
        due: list[DueDeadLetter] = []
        for run in self._runs.runs:
            if run.state is RecordState.ARCHIVING and run.pending is None and not run.dirty:
                end = min(run.last + 1, run.first + limit - len(due))
                due += (DueDeadLetter(each, run.delivery_count, run.rejected) for each in range(run.first, end))
            if len(due) >= limit:
                break
        return due

    def archive(self, offsets: Iterable[int]) -> None:
        """Archive ARCHIVING records among `offsets` with the next successful write.

        Their dead letters are durable, or the group gives them up.
        """
        runs = self._runs
        for offset in offsets:
            if any(run.state is RecordState.ARCHIVING for run in runs.overlapping(offset, offset)):
                for part in runs.isolated(offset, offset):
                    part.pending = RecordState.ARCHIVED
                    part.rejected = part.dirty = part.writing = False
        runs.merge(runs.start, runs.end)

    # --- writes ----------------------------------------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        """Whether a write is in progress."""
        return self._writing

    def begin_write(self) -> StateWrite | None:
        """Return the state to store now; None if a write is in progress or nothing changed."""
        if self._writing:
            return None
        runs = self._runs
        changed = [run for run in runs.runs if run.pending is not None or run.dirty]
        if not changed and self._archived_below is None and not self._start_is_new:
            return None
        self._writing = True
        self._start_is_new = False
        self._write_number += 1
        self._writing_archived, self._archived_below = self._archived_below, None
        batches: list[StateBatch] = []
        if self._writing_archived is not None:
            batches.append(StateBatch(*self._writing_archived, RecordState.ARCHIVED, 0))
        for run in changed:
            run.writing = True
            state, count = run.to_store
            before = batches[-1] if batches else None
            if (
                before is not None
                and before.last_offset == run.first - 1
                and (before.state, before.delivery_count) == (state, count)
            ):
                batches[-1] = StateBatch(before.first_offset, run.last, state, count)
            else:
                batches.append(StateBatch(run.first, run.last, state, count))
        start = runs.start
        complete = 0
        for run in runs.runs:
            if run.next_state in TERMINAL:
                if run.first == start:
                    start = run.last + 1
                else:
                    complete += run.count
        return StateWrite(self._write_number, start, complete, tuple(batches))

    def end_write(self, now_ms: int, *, stored: bool) -> None:
        """Commit the changes of the write, or revert its acknowledgements: the records are acquired as before."""
        if not self._writing:
            raise InvariantError("no write of share state is in progress")
        self._writing = False
        archived, self._writing_archived = self._writing_archived, None
        if not stored:
            self._start_is_new = True
            if archived is not None:
                self._note_archived(*archived)
        for run in self._runs.runs:
            if not run.writing:
                continue
            run.writing = False
            if run.pending is None:
                run.dirty = not stored
            elif stored:
                run.state, run.pending, run.dirty = run.pending, None, False
                run.member_id, run.until_ms = NO_MEMBER, 0
                self._back_off(run, now_ms)
                self._available_from = min(self._available_from, run.first)
            elif run.state is RecordState.ACQUIRED:
                run.pending, run.rejected = None, False
                self._expire_at(run.until_ms)
        self._settle()

    def _settle(self) -> None:
        self._runs.merge(self._runs.start, self._runs.end)
        self._advance()

    def _advance(self) -> None:
        """Move the start offset over settled records."""
        runs = self._runs
        offset = runs.start
        for run in runs.runs:
            if not run.is_settled:
                break
            if run.dirty:
                self._note_archived(run.first, run.last)
            offset = run.last + 1
        runs.advance(offset)

    def _note_archived(self, first: int, last: int) -> None:
        """Store that a range below the start is settled, since nothing else may be written before a leader change."""
        before = self._archived_below
        self._archived_below = (first, last) if before is None else (min(before[0], first), max(before[1], last))
