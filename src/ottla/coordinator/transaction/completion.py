"""Completion of prepared transactions: sends the markers, then writes the record that all markers are written.

Markers are sent once the decision is committed, whether or not its client got a success response. A write that timed
out may be committed later, and a loaded decision need not be committed yet. Then the completion record is written, with
retries.

Invariants: the markers of a transaction are sent once at a time, never before its decision is committed. The state here
is soft: after a leader change the next coordinator finds the decision in its log and starts over. A waiter is called
once, when the completion is committed or the shard is closed, unless it stops waiting before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.logs import RATE_LIMITED
from ottla.coordinator.runtime import EMPTY_RESULT, CoordinatorResult, CoordinatorTimer
from ottla.coordinator.transaction.context import ShardContext
from ottla.coordinator.transaction.markers import TxnMarker
from ottla.coordinator.transaction.metadata import TransactionMetadata, completed
from ottla.coordinator.transaction.records import TransactionRecord
from ottla.coordinator.transaction.state import PREPARED, TransactionState
from ottla.timeline import TimelineDict

logger = logging.getLogger(__name__)

COMPLETE = "complete-transaction"
"""Name of the operation."""

RESUME_TIMER = "resume-endings"
RESUME_BACKOFF_MS = 500
SLICE = 100
"""Number of transactions per step of a retry."""

Result = CoordinatorResult[TransactionRecord, None]
Kept = list[tuple[str, TransactionMetadata]]


class TransactionCompletions:
    """Owns the transactions that are being completed; their metadata belongs to the shard."""

    __slots__ = (
        "_context",
        "_live",
        "_partition",
        "_sent",
        "_timer",
        "_transactions",
        "_uncommitted",
        "_unwritten",
        "_waiting",
    )

    def __init__(
        self,
        context: ShardContext,
        partition: int,
        timer: CoordinatorTimer,
        transactions: TimelineDict[str, TransactionMetadata],
    ) -> None:
        self._context = context
        self._partition = partition
        self._timer = timer
        self._transactions = transactions
        self._live = True
        self._sent: dict[str, TransactionMetadata] = {}
        """Markers are sent or written; the completion record is not committed."""
        self._uncommitted: dict[str, TransactionMetadata] = {}
        """Decided, but the decision is not known to be committed."""
        self._unwritten: dict[str, TransactionMetadata] = {}
        """All markers are written, but the last write of the completion record failed."""
        self._waiting: dict[str, dict[Callable[[], None], None]] = {}
        """Callbacks to call when a transaction is complete, in order of registration."""

    @property
    def pending_count(self) -> int:
        """Number of transactions with markers in flight, or a completion record in flight."""
        return len(self._sent)

    @property
    def unwritten_count(self) -> int:
        """Number of transactions with a completion record to write again (LogAppendRetryQueueSize)."""
        return len(self._unwritten)

    def decided(self, transactional_id: str, metadata: TransactionMetadata, error: KafkaError | None) -> None:
        """The decision's record is committed, or (`error`) timed out, or was reverted."""
        if error is None:
            self._send(transactional_id, metadata)
        elif self._transactions.get(transactional_id) is metadata:
            self._uncommitted[transactional_id] = metadata
            self._schedule(RESUME_BACKOFF_MS)

    def loaded(self, open_ids: Iterable[str]) -> None:
        """Resume the transactions that the previous coordinator decided."""
        for transactional_id in open_ids:
            metadata = self._transactions[transactional_id]
            if metadata.state in PREPARED:
                self._uncommitted[transactional_id] = metadata
        if self._uncommitted:
            self._schedule(0)

    def unloaded(self) -> None:
        """Stop; the next coordinator resumes the transactions."""
        self._live = False
        self._context.markers.cancel(self._partition)
        for transactional_id in list(self._waiting):
            self._wake(transactional_id)

    def release(self) -> Iterator[None]:
        """Release everything in short steps."""
        for kept in (self._sent, self._uncommitted, self._unwritten):
            while kept:
                kept.popitem()
                yield

    # --- waiting for completion ---------------------------------------------------------------------------------------

    def after_ending(self, transactional_id: str, then: Callable[[], None]) -> None:
        """Call `then()` once the id has no prepared transaction: now, or on completion."""
        metadata = self._transactions.get(transactional_id)
        if self._live and metadata is not None and metadata.state in PREPARED:
            self._waiting.setdefault(transactional_id, {})[then] = None
        else:
            then()

    def stop_waiting(self, transactional_id: str, then: Callable[[], None]) -> None:
        """Cancel the call of `then`."""
        waiting = self._waiting.get(transactional_id)
        if waiting is not None:
            waiting.pop(then, None)
            if not waiting:
                del self._waiting[transactional_id]

    def _wake(self, transactional_id: str) -> None:
        for then in self._waiting.pop(transactional_id, ()):
            then()

    # --- markers ------------------------------------------------------------------------------------------------------

    def _send(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        if self._transactions.get(transactional_id) is not metadata or self._sent.get(transactional_id) is metadata:
            return
        self._sent[transactional_id] = metadata
        if not metadata.partitions:
            self._complete(transactional_id, metadata)
            return
        marker = TxnMarker(
            transactional_id,
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.state is TransactionState.PREPARE_COMMIT,
            self._context.writes().leader_epoch(self._partition),
            metadata.client_version,
            metadata.partitions,
        )
        self._context.markers.send(self._partition, marker, partial(self._marked, transactional_id, metadata))

    def _marked(self, transactional_id: str, metadata: TransactionMetadata, code: ErrorCode) -> None:
        if not self._live or self._sent.get(transactional_id) is not metadata:
            return
        if code is ErrorCode.NONE:
            self._complete(transactional_id, metadata)
            return
        # As in Apache Kafka the id stays in its state: a partition knows a newer coordinator or producer epoch.
        logger.warning(
            "transaction markers of producer %d, epoch %d were permanently rejected: %s",
            metadata.producer_id,
            metadata.producer_epoch,
            code.name,
            extra=RATE_LIMITED,
        )

    # --- the completion record ----------------------------------------------------------------------------------------

    def _complete(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        def operation(_shard: object) -> Result:
            if self._transactions.get(transactional_id) is not metadata:
                return EMPTY_RESULT
            return CoordinatorResult((self._completion(transactional_id, metadata),))

        def done(_response: object, error: KafkaError | None) -> None:
            if self._transactions.get(transactional_id) is metadata:
                # Not written, or written and reverted. Otherwise it is in the log, committed or not yet.
                self._unwritten[transactional_id] = metadata
                self._schedule(RESUME_BACKOFF_MS)
            else:
                self._ended(transactional_id, metadata)

        self._context.writes().schedule_write(COMPLETE, self._partition, operation, done)

    def _ended(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        if self._sent.get(transactional_id) is metadata:
            del self._sent[transactional_id]
        self._wake(transactional_id)

    def _completion(self, transactional_id: str, metadata: TransactionMetadata) -> TransactionRecord:
        return TransactionRecord(transactional_id, completed(metadata, self._context.clock.time_ms()))

    # --- retries ------------------------------------------------------------------------------------------------------

    def _schedule(self, delay_ms: int) -> None:
        if self._live:
            self._timer.schedule_if_absent(RESUME_TIMER, delay_ms, self._resume)

    def _resume(self) -> Result:
        """Write completion records again, and find out whether decisions are committed: the result waits until all
        records that it has seen are committed."""
        unwritten = list(islice(self._unwritten.items(), SLICE))
        uncommitted = list(islice(self._uncommitted.items(), SLICE))
        records = [
            self._completion(transactional_id, metadata)
            for transactional_id, metadata in unwritten
            if self._transactions.get(transactional_id) is metadata
        ]
        return CoordinatorResult(records, appended=partial(self._resumed, unwritten, uncommitted), atomic=False)

    def _resumed(self, unwritten: Kept, uncommitted: Kept, error: KafkaError | None) -> None:
        for transactional_id, metadata in unwritten:
            if self._transactions.get(transactional_id) is not metadata:
                _forget(self._unwritten, transactional_id, metadata)
                self._ended(transactional_id, metadata)
        if error is None:
            for transactional_id, metadata in uncommitted:
                _forget(self._uncommitted, transactional_id, metadata)
                self._send(transactional_id, metadata)
        if self._unwritten or self._uncommitted:
            self._schedule(0 if error is None else RESUME_BACKOFF_MS)


def _forget(kept: dict[str, TransactionMetadata], transactional_id: str, metadata: TransactionMetadata) -> None:
    if kept.get(transactional_id) is metadata:
        del kept[transactional_id]
