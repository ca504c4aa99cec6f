"""Metadata of one transactional id, and its state transitions.

A transition returns the next metadata and changes nothing: the caller returns it as a record, and `replay` stores it.
Epochs rise to 32766. Epoch 32767 is never assigned to a producer; it only fences and marks, so that the last epoch can
still be fenced. When the epochs are exhausted, the id continues with a new producer id from epoch 0.

Invariant: `previous_producer_id` is the producer id before the transition, for every transition; only a retried
InitProducerId leaves it unchanged.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.errors import InvariantError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.coordinator.transaction.state import IDLE, VALID_PREVIOUS_STATES, TransactionState
from ottla.record.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NO_TIMESTAMP = -1

LAST_EPOCH = 32_766
"""The last epoch of a producer."""
FENCING_EPOCH = 32_767

NO_TIMEOUT_MS = 2**31 - 1
"""Transactions with this timeout never time out: in Apache Kafka those of two-phase commit (KIP-939)."""

TRANSACTION_VERSION_1 = 1
"""From this level of `transaction.version` on, values are written with tagged fields."""
TRANSACTION_VERSION_2 = 2
"""From this level of `transaction.version` on, each end of a transaction raises the epoch (KIP-890)."""

NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class TransactionMetadata(NamedTuple):
    """State of one transactional id. Times in milliseconds since the Unix epoch."""

    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    """Producer id after the end of this transaction, if the epochs of `producer_id` are exhausted."""
    producer_epoch: int
    last_producer_epoch: int
    """The epoch before the last bump, which identifies a retried InitProducerId. Not in the log, as in Apache Kafka:
    NO_PRODUCER_EPOCH after a load."""
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    start_ms: int
    """Start of the transaction; NO_TIMESTAMP before the first one."""
    last_update_ms: int
    client_version: int
    """Transaction version of the client's last request, 0 or 2: not the cluster's level."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer can't have a higher epoch."""
        return self.producer_epoch >= LAST_EPOCH

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Return whether the id was idle for longer than the expiration time."""
        return self.last_update_ms <= now_ms - expiration_ms and self.state in IDLE

    def is_timed_out(self, now_ms: int) -> bool:
        """Return whether the coordinator has to abort the transaction."""
        return (
            self.state is TransactionState.ONGOING
            and self.start_ms + self.timeout_ms < now_ms
            and self.timeout_ms != NO_TIMEOUT_MS
        )


def new_producer(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """Return the metadata of a new transactional id, with epoch 0."""
    return TransactionMetadata(
        producer_id,
        producer_id,
        NO_PRODUCER_ID,
        0,
        NO_PRODUCER_EPOCH,
        timeout_ms,
        TransactionState.EMPTY,
        NO_PARTITIONS,
        NO_TIMESTAMP,
        now_ms,
        0,
    )


def initialized(
    before: TransactionMetadata, producer_epoch: int, last_producer_epoch: int, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    """Return the metadata with the producer's next epoch."""
    return _empty(before, before.producer_id, producer_epoch, last_producer_epoch, timeout_ms, now_ms)


def rotated(
    before: TransactionMetadata, producer_id: int, last_producer_epoch: int, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    """Return the metadata with another producer id, from epoch 0."""
    return _empty(before, producer_id, 0, last_producer_epoch, timeout_ms, now_ms)


def _empty(
    before: TransactionMetadata,
    producer_id: int,
    producer_epoch: int,
    last_producer_epoch: int,
    timeout_ms: int,
    now_ms: int,
) -> TransactionMetadata:
    _check(before, TransactionState.EMPTY)
    return TransactionMetadata(
        producer_id,
        before.producer_id,
        before.next_producer_id,
        producer_epoch,
        last_producer_epoch,
        timeout_ms,
        TransactionState.EMPTY,
        NO_PARTITIONS,
        NO_TIMESTAMP,
        now_ms,
        before.client_version,
    )


def partitions_added(
    before: TransactionMetadata, partitions: frozenset[TopicPartition], now_ms: int, client_version: int
) -> TransactionMetadata:
    """Return the open transaction with these partitions added; it begins now if none was open."""
    _check(before, TransactionState.ONGOING)
    return TransactionMetadata(
        before.producer_id,
        before.producer_id,
        before.next_producer_id,
        before.producer_epoch,
        before.last_producer_epoch,
        before.timeout_ms,
        TransactionState.ONGOING,
        before.partitions | partitions,
        before.start_ms if before.state is TransactionState.ONGOING else now_ms,
        now_ms,
        client_version,
    )


def prepared(
    before: TransactionMetadata, state: TransactionState, next_producer_id: int, now_ms: int, client_version: int
) -> TransactionMetadata:
    """Return the decided transaction; `state` is one of PREPARED.

    With transactions v2 the epoch rises now, for the markers and for the client's next transaction. An abort without
    open transaction begins and ends one.
    """
    _check(before, state)
    producer_epoch, last_producer_epoch = before.producer_epoch, before.last_producer_epoch
    if client_version >= TRANSACTION_VERSION_2:
        last_producer_epoch = producer_epoch
        producer_epoch = min(producer_epoch + 1, FENCING_EPOCH)
    return _prepared(before, state, producer_epoch, last_producer_epoch, next_producer_id, now_ms, client_version)


def fenced(before: TransactionMetadata, next_producer_id: int, now_ms: int, version: int) -> TransactionMetadata:
    """Return the coordinator's abort of the transaction, by the rules of `version`, the cluster's level.

    The epoch rises once under either version, which fences the producer.
    """
    if version >= TRANSACTION_VERSION_2:
        return prepared(before, TransactionState.PREPARE_ABORT, next_producer_id, now_ms, version)
    _check(before, TransactionState.PREPARE_ABORT)
    producer_epoch = min(before.producer_epoch + 1, FENCING_EPOCH)
    return _prepared(
        before, TransactionState.PREPARE_ABORT, producer_epoch, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, now_ms, 0
    )


def _prepared(
    before: TransactionMetadata,
    state: TransactionState,
    producer_epoch: int,
    last_producer_epoch: int,
    next_producer_id: int,
    now_ms: int,
    client_version: int,
) -> TransactionMetadata:
    return TransactionMetadata(
        before.producer_id,
        before.producer_id,
        next_producer_id,
        producer_epoch,
        last_producer_epoch,
        before.timeout_ms,
        state,
        before.partitions,
        before.start_ms if before.state is TransactionState.ONGOING else now_ms,
        now_ms,
        client_version,
    )


def completed(before: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return the completed transaction: all markers are written. The next producer id replaces exhausted ones."""
    commit = before.state is TransactionState.PREPARE_COMMIT
    state = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    _check(before, state)
    producer_id, producer_epoch = next_identity(before)
    return TransactionMetadata(
        producer_id,
        before.producer_id,
        NO_PRODUCER_ID,
        producer_epoch,
        before.last_producer_epoch,
        before.timeout_ms,
        state,
        NO_PARTITIONS,
        before.start_ms,
        now_ms,
        before.client_version,
    )


def next_identity(prepared: TransactionMetadata) -> tuple[int, int]:
    """Return producer id and epoch after the end of this prepared transaction."""
    if prepared.next_producer_id != NO_PRODUCER_ID and prepared.client_version >= TRANSACTION_VERSION_2:
        return prepared.next_producer_id, 0
    return prepared.producer_id, prepared.producer_epoch


def _check(before: TransactionMetadata, state: TransactionState) -> None:
    if before.state not in VALID_PREVIOUS_STATES[state]:
        raise InvariantError(f"invalid transaction state transition from {before.state.label} to {state.label}")
