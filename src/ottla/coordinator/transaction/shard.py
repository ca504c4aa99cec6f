"""One shard of the transaction coordinator: the transactional ids of one partition of `__transaction_state`.

A decision (`initialization`, `partitions`, `end_txn`) is a function of the current metadata. The shard returns its
outcome as a record, and only `replay` changes the state. `endings` completes decided transactions, `sweeps` aborts
abandoned ones and expires unused ids.

The response of an operation, even a rejection, is part of its result. So an epoch fences no producer if its append
fails.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from ottla.common.errors import ErrorCode
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.logs import RATE_LIMITED
from ottla.coordinator.runtime import CoordinatorResult, CoordinatorTimer
from ottla.coordinator.transaction import partitions as membership
from ottla.coordinator.transaction.completion import TransactionCompletions
from ottla.coordinator.transaction.context import ShardContext
from ottla.coordinator.transaction.end_txn import end_v1, end_v2
from ottla.coordinator.transaction.initialization import ProducerIdentity, initialize
from ottla.coordinator.transaction.memory import PARTITION_BYTES, MemoryUsage, id_bytes
from ottla.coordinator.transaction.metadata import (
    TRANSACTION_VERSION_2,
    TransactionMetadata,
    next_identity,
)
from ottla.coordinator.transaction.outcome import MissingInput
from ottla.coordinator.transaction.records import ENDING_BYTES, TransactionRecord
from ottla.coordinator.transaction.state import PREPARED, TransactionState
from ottla.coordinator.transaction.sweeps import Sweeps
from ottla.record.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.timeline import SnapshotRegistry, TimelineDict, TimelineValue

logger = logging.getLogger(__name__)


class ProducerIdResult(NamedTuple):
    """The response to a producer, with the id and epoch to continue with."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


Answered = CoordinatorResult[TransactionRecord, ProducerIdResult | MissingInput]
"""NEEDS_PRODUCER_ID: retry with an allocated producer id."""


class TransactionShard:
    """Transaction state machine that the coordinator runtime loads, replays into and calls."""

    __slots__ = ("_context", "_id_bytes", "_partition_count", "endings", "open_ids", "sweeps", "transactions")

    def __init__(
        self, context: ShardContext, partition: int, registry: SnapshotRegistry, timer: CoordinatorTimer
    ) -> None:
        self._context = context
        self.transactions: TimelineDict[str, TransactionMetadata] = TimelineDict(registry)
        """Metadata by transactional id."""
        self.open_ids: TimelineDict[str, None] = TimelineDict(registry)
        """Ids with an ongoing or decided transaction: sweeps and loads examine only these, out of perhaps a million."""
        self._id_bytes = TimelineValue(registry, 0)
        self._partition_count = TimelineValue(registry, 0)
        self.endings = TransactionCompletions(context, partition, timer, self.transactions)
        self.sweeps = Sweeps(context, partition, timer, self.transactions, self.open_ids, self.endings)

    # --- CoordinatorShard ---------------------------------------------------------------------------------------------

    def replay(self, offset: int, record: TransactionRecord, producer_id: int, producer_epoch: int) -> None:
        """Apply one record, while loading or right before it is appended. This topic has no transactional records.

        An id with an undecodable record is removed: the previous state may be outdated, and could end a transaction of
        another producer. Its producer gets INVALID_PRODUCER_ID_MAPPING until it initializes, which assigns a new
        producer id. Only a decision is retained: its client has the response, and only the completion can follow.
        """
        transactional_id, metadata, is_readable = record
        before = self.transactions.get(transactional_id)
        if metadata is None:
            if before is not None and (is_readable or before.state not in PREPARED):
                self._id_bytes.value -= id_bytes(transactional_id)
                self._partition_count.value -= len(before.partitions)
                del self.transactions[transactional_id]
                self.open_ids.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = metadata
        added = len(metadata.partitions)
        if before is None:
            self._id_bytes.value += id_bytes(transactional_id)
        else:
            added -= len(before.partitions)
        if added:
            self._partition_count.value += added
        is_open = TransactionState.ONGOING <= metadata.state <= TransactionState.PREPARE_ABORT
        if is_open is not (transactional_id in self.open_ids):
            if is_open:
                self.open_ids[transactional_id] = None
            else:
                del self.open_ids[transactional_id]

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """Does nothing: the transaction log contains no transactional records."""

    def loaded(self) -> None:
        """Everything was replayed: resume decided transactions and start the sweeps."""
        self._context.memory.loaded(self.held)
        self.endings.loaded(self.open_ids)
        self.sweeps.loaded()

    def unloaded(self) -> None:
        """Leadership is lost."""
        self.endings.unloaded()
        self.sweeps.unloaded()

    def release(self) -> Iterator[None]:
        """Release the ids in short steps: there may be a million."""
        yield from self.endings.release()
        while self.transactions:
            dict.popitem(self.transactions)
            yield
        while self.open_ids:
            dict.popitem(self.open_ids)
            yield

    @property
    def open_count(self) -> int:
        """Number of transactions that are ongoing, or decided and not complete."""
        return len(self.open_ids)

    @property
    def held(self) -> MemoryUsage:
        """Approximate memory of the shard."""
        return MemoryUsage(self._id_bytes.value, self._partition_count.value * PARTITION_BYTES)

    # --- operations ---------------------------------------------------------------------------------------------------

    def initialize(
        self,
        transactional_id: str,
        expected: ProducerIdentity | None,
        timeout_ms: int,
        spare_producer_id: int | None,
    ) -> Answered:
        """Handle InitProducerId; CONCURRENT_TRANSACTIONS also while the open transaction is aborted for it.

        COORDINATOR_NOT_AVAILABLE when the memory limit for ids is reached.
        """
        context = self._context
        current = self.transactions.get(transactional_id)
        is_new = current is None and spare_producer_id is None
        if is_new and not context.memory.admits_id(transactional_id):
            return _without_record(_no_room())
        decision = initialize(
            current,
            expected,
            timeout_ms,
            context.clock.time_ms(),
            context.transaction_version(),
            spare_producer_id,
        )
        if not isinstance(decision, TransactionMetadata):
            return _without_record(decision)
        if decision.state is TransactionState.EMPTY:
            answer = ProducerIdResult(ErrorCode.NONE, decision.producer_id, decision.producer_epoch)
            return CoordinatorResult((TransactionRecord(transactional_id, decision),), answer)
        return self._decided(transactional_id, decision, ProducerIdResult(ErrorCode.CONCURRENT_TRANSACTIONS))

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        client_version: int,
    ) -> CoordinatorResult[TransactionRecord, ErrorCode]:
        """Handle AddPartitionsToTxn and AddOffsetsToTxn. COORDINATOR_NOT_AVAILABLE at the memory limit."""
        current = self.transactions.get(transactional_id)
        decision = membership.add(
            current,
            producer_id,
            producer_epoch,
            partitions,
            client_version,
            self._context.clock.time_ms(),
        )
        if isinstance(decision, ErrorCode):
            return CoordinatorResult((), decision)
        added = len(decision.partitions) - (0 if current is None else len(current.partitions))
        if not self._context.memory.admits_partitions(added):
            return CoordinatorResult((), _no_room())
        record = TransactionRecord(transactional_id, decision)
        return CoordinatorResult((record,), ErrorCode.NONE, reserve_bytes=ENDING_BYTES)

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: frozenset[TopicPartition]
    ) -> CoordinatorResult[TransactionRecord, dict[TopicPartition, ErrorCode]]:
        """Handle AddPartitionsToTxn with verify_only. A write, since it must see partitions that are being added."""
        current = self.transactions.get(transactional_id)
        return CoordinatorResult((), membership.verify(current, producer_id, producer_epoch, partitions))

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        client_version: int,
        spare_producer_id: int | None,
        *,
        committed: bool,
    ) -> Answered:
        """Handle EndTxn. With transactions v2 the response contains the producer's next id and epoch."""
        current = self.transactions.get(transactional_id)
        now_ms = self._context.clock.time_ms()
        producer_id, producer_epoch = producer
        if client_version < TRANSACTION_VERSION_2:
            decision = end_v1(current, producer_id, producer_epoch, now_ms, committed=committed)
            if isinstance(decision, TransactionMetadata):
                return self._decided(transactional_id, decision, ProducerIdResult(ErrorCode.NONE))
            return _without_record(decision)
        decision = end_v2(current, producer_id, producer_epoch, now_ms, spare_producer_id, committed=committed)
        if isinstance(decision, TransactionMetadata):
            return self._decided(transactional_id, decision, ProducerIdResult(ErrorCode.NONE, *next_identity(decision)))
        if decision is ErrorCode.NONE and current is not None:
            return CoordinatorResult((), ProducerIdResult(ErrorCode.NONE, current.producer_id, current.producer_epoch))
        return _without_record(decision)

    def _decided(self, transactional_id: str, decision: TransactionMetadata, answer: ProducerIdResult) -> Answered:
        return CoordinatorResult(
            (TransactionRecord(transactional_id, decision),),
            answer,
            partial(self.endings.decided, transactional_id, decision),
        )


def _no_room() -> ErrorCode:
    """Log and return an error that every client retries: ids expire, transactions end."""
    logger.warning(
        "rejecting new transactional ids or partitions: memory of ids and open transactions has reached "
        "transaction.coordinator.max.bytes",
        extra=RATE_LIMITED,
    )
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _without_record(decision: ErrorCode | MissingInput) -> Answered:
    return CoordinatorResult((), decision if isinstance(decision, MissingInput) else ProducerIdResult(decision))
