"""Periodic sweeps over the ids of one shard: abort timed-out transactions, expire unused ids.

A sweep runs in steps, each a write operation that examines a limited number of ids and yields to others. Each sweep has
one timer, however many ids there are. So a transaction is aborted up to
`transaction.abort.timed.out.transaction.cleanup.interval.ms` after its timeout, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ottla.common.errors import InvariantError, KafkaError
from ottla.coordinator.runtime import EMPTY_RESULT, CoordinatorResult, CoordinatorTimer
from ottla.coordinator.transaction.completion import TransactionCompletions
from ottla.coordinator.transaction.context import ShardContext
from ottla.coordinator.transaction.end_txn import abort_open
from ottla.coordinator.transaction.metadata import TransactionMetadata
from ottla.coordinator.transaction.records import TransactionRecord
from ottla.timeline import TimelineDict

ABORT_TIMER = "abort-timed-out-transactions"
EXPIRE_TIMER = "expire-transactional-ids"
ABORT_WITH_PRODUCER_ID = "abort-timed-out-transaction"
"""Name of the operation."""

EXAMINED_PER_STEP = 2_000
"""Ids examined in one step."""
WRITTEN_PER_STEP = 200
"""Records of one step: aborted transactions, expired ids."""

Result = CoordinatorResult[TransactionRecord, None]


class Sweeps:
    """The sweeps of one shard."""

    __slots__ = (
        "_context",
        "_endings",
        "_live",
        "_open",
        "_partition",
        "_timer",
        "_transactions",
        "_unswept",
        "_untimed",
    )

    def __init__(
        self,
        context: ShardContext,
        partition: int,
        timer: CoordinatorTimer,
        transactions: TimelineDict[str, TransactionMetadata],
        open_ids: TimelineDict[str, None],
        endings: TransactionCompletions,
    ) -> None:
        self._context = context
        self._partition = partition
        self._timer = timer
        self._transactions = transactions
        self._open = open_ids
        self._endings = endings
        self._live = True
        self._untimed: Iterator[str] | None = None
        """Open transactions that the current sweep still has to examine; None between sweeps."""
        self._unswept: Iterator[str] | None = None
        """Ids that the current expiry sweep still has to examine; None between sweeps."""

    def loaded(self) -> None:
        """Start the timers."""
        self._schedule_aborts()
        self._schedule_expiry()

    def unloaded(self) -> None:
        """The timers are cancelled; a producer id that arrives now is not used."""
        self._live = False

    # --- timed-out transactions ---------------------------------------------------------------------------------------

    def _schedule_aborts(self) -> None:
        interval_ms = self._context.config().transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._timer.schedule(ABORT_TIMER, interval_ms, self._abort_timed_out)

    def _abort_timed_out(self) -> Result:
        """Run one step of a sweep over the open transactions."""
        if self._untimed is None:
            self._untimed = iter(list(self._open))
        now_ms = self._context.clock.time_ms()
        aborted: list[TransactionRecord] = []
        for examined, transactional_id in enumerate(self._untimed, 1):
            decision = self._abort_of(transactional_id, now_ms)
            if decision is not None:
                aborted.append(TransactionRecord(transactional_id, decision))
            if examined >= EXAMINED_PER_STEP or len(aborted) >= WRITTEN_PER_STEP:
                self._timer.schedule(ABORT_TIMER, 0, self._abort_timed_out)
                break
        else:
            self._untimed = None
            self._schedule_aborts()
        return self._aborted(aborted)

    def _abort_of(self, transactional_id: str, now_ms: int) -> TransactionMetadata | None:
        """Return the abort of a timed-out transaction; None if it has to wait for a producer id."""
        metadata = self._transactions.get(transactional_id)
        if metadata is None or not metadata.is_timed_out(now_ms):
            return None
        decision = abort_open(metadata, now_ms, self._context.transaction_version(), None)
        if isinstance(decision, TransactionMetadata):
            return decision
        self._context.producer_ids.next_id(partial(self._producer_id_received, transactional_id, metadata))
        return None

    def _producer_id_received(
        self,
        transactional_id: str,
        metadata: TransactionMetadata,
        producer_id: int | None,
        _error: BaseException | None,
    ) -> None:
        """Abort the transaction. Without an id the next sweep requests one again."""
        if producer_id is None or not self._live:
            return

        def operation(_shard: object) -> Result:
            if self._transactions.get(transactional_id) is not metadata:
                return EMPTY_RESULT
            context = self._context
            decision = abort_open(metadata, context.clock.time_ms(), context.transaction_version(), producer_id)
            if not isinstance(decision, TransactionMetadata):
                raise InvariantError("an abort with a producer id requested another one")
            return self._aborted([TransactionRecord(transactional_id, decision)])

        writes = self._context.writes()
        writes.schedule_write(ABORT_WITH_PRODUCER_ID, self._partition, operation, lambda _response, _error: None)

    def _aborted(self, records: list[TransactionRecord]) -> Result:
        if not records:
            return EMPTY_RESULT
        return CoordinatorResult(records, appended=partial(self._decided, records), atomic=False)

    def _decided(self, records: list[TransactionRecord], error: KafkaError | None) -> None:
        for transactional_id, metadata, _ in records:
            if metadata is not None:
                self._endings.decided(transactional_id, metadata, error)

    # --- unused ids ---------------------------------------------------------------------------------------------------

    def _schedule_expiry(self) -> None:
        interval_ms = self._context.config().transaction_remove_expired_transaction_cleanup_interval_ms
        self._timer.schedule(EXPIRE_TIMER, interval_ms, self._expire)

    def _expire(self) -> Result:
        """Run one step of a sweep over all ids."""
        if self._unswept is None:
            self._unswept = iter(list(self._transactions))
        now_ms = self._context.clock.time_ms()
        expiration_ms = self._context.config().transactional_id_expiration_ms
        tombstones: list[TransactionRecord] = []
        for examined, transactional_id in enumerate(self._unswept, 1):
            metadata = self._transactions.get(transactional_id)
            if metadata is not None and metadata.is_expired(now_ms, expiration_ms):
                tombstones.append(TransactionRecord(transactional_id, None))
            if examined >= EXAMINED_PER_STEP or len(tombstones) >= WRITTEN_PER_STEP:
                self._timer.schedule(EXPIRE_TIMER, 0, self._expire)
                break
        else:
            self._unswept = None
            self._schedule_expiry()
        return CoordinatorResult(tombstones, atomic=False)
