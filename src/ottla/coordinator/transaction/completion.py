"""Decided transactions of one shard on their way to the end: markers out, then the record that all are written.

Markers go out once the decision is committed, whatever its client was told: a write whose time was up may be committed
later, and a decision that was loaded need not be committed yet. Then the end is written, until it is.

Invariants: markers of a transaction are out once at a time; none before its decision is committed. What is kept here
is soft: after a move the next coordinator finds the decision in its log and begins anew. Whoever waits for an end is
called once, when the end is committed or the shard goes away, unless it stops waiting first.
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
"""The operation's name."""

RESUME_TIMER = "resume-endings"
RESUME_BACKOFF_MS = 500
SLICE = 100
"""Transactions that one step of a resumption deals with."""

Result = CoordinatorResult[TransactionRecord, None]
Kept = list[tuple[str, TransactionMetadata]]


class Endings:
    """Owner of what is on its way; the transactions belong to the shard."""

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
        """Markers out, or all written."""
        self._uncommitted: dict[str, TransactionMetadata] = {}
        """Decided, and not known to be committed."""
        self._unwritten: dict[str, TransactionMetadata] = {}
        """All markers written, the end not yet: the last attempt failed."""
        self._waiting: dict[str, dict[Callable[[], None], None]] = {}
        """Whom to call when a transaction has ended, in the order of their coming."""

    @property
    def pending_count(self) -> int:
        """Transactions whose markers are out, or whose end is being written."""
        return len(self._sent)

    @property
    def unwritten_count(self) -> int:
        """Transactions whose end waits to be written again (LogAppendRetryQueueSize)."""
        return len(self._unwritten)

    def decided(self, transactional_id: str, metadata: TransactionMetadata, error: KafkaError | None) -> None:
        """The record of a decision is committed, or (`error`) was not in time, or was reverted."""
        if error is None:
            self._send(transactional_id, metadata)
        elif self._transactions.get(transactional_id) is metadata:
            self._uncommitted[transactional_id] = metadata
            self._schedule(RESUME_BACKOFF_MS)

    def loaded(self, open_ids: Iterable[str]) -> None:
        """Go on with what a coordinator before this one decided."""
        for transactional_id in open_ids:
            metadata = self._transactions[transactional_id]
            if metadata.state in PREPARED:
                self._uncommitted[transactional_id] = metadata
        if self._uncommitted:
            self._schedule(0)

    def unloaded(self) -> None:
        """Another broker goes on with it."""
        self._live = False
        self._context.markers.cancel(self._partition)
        for transactional_id in list(self._waiting):
            self._wake(transactional_id)

    def release(self) -> Iterator[None]:
        """Let go of everything in short steps."""
        for kept in (self._sent, self._uncommitted, self._unwritten):
            while kept:
                kept.popitem()
                yield

    # --- who waits for an end ----------------------------------------------------------------------------------------

    def after_ending(self, transactional_id: str, then: Callable[[], None]) -> None:
        """Call `then()` once when the id's transaction is not one that is decided and not ended: now, or later."""
        metadata = self._transactions.get(transactional_id)
        if self._live and metadata is not None and metadata.state in PREPARED:
            self._waiting.setdefault(transactional_id, {})[then] = None
        else:
            then()

    def stop_waiting(self, transactional_id: str, then: Callable[[], None]) -> None:
        """`then` is not to be called any more."""
        waiting = self._waiting.get(transactional_id)
        if waiting is not None:
            waiting.pop(then, None)
            if not waiting:
                del self._waiting[transactional_id]

    def _wake(self, transactional_id: str) -> None:
        for then in self._waiting.pop(transactional_id, ()):
            then()

    # --- markers -----------------------------------------------------------------------------------------------------

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
        # As in Apache Kafka the id stays as it is: a partition knows a newer coordinator or epoch of the producer.
        logger.warning(
            "the markers of a transaction of producer %d, epoch %d, were refused for good: %s",
            metadata.producer_id,
            metadata.producer_epoch,
            code.name,
            extra=RATE_LIMITED,
        )

    # --- the end -----------------------------------------------------------------------------------------------------

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

    # --- what did not go through at once -----------------------------------------------------------------------------

    def _schedule(self, delay_ms: int) -> None:
        if self._live:
            self._timer.schedule_if_absent(RESUME_TIMER, delay_ms, self._resume)

    def _resume(self) -> Result:
        """Write ends again, and learn whether what was decided is committed: the result waits for all that is seen."""
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
