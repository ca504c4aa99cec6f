"""What is known of one transactional id, and the transitions it can make.

A transition makes the next metadata and changes nothing: who decided on it returns it as a record, and `replay` puts it
in place. Epochs rise to 32766; 32767 is no producer's, it only fences and marks, so that the last epoch can still be
fenced. When they are used up the id goes on with a new producer id from epoch 0.

Invariant: `previous_producer_id` is the producer id before the transition, whatever the transition; only an
InitProducerId that is asked again leaves it.
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
"""Transactions with this timeout are never timed out: in Apache Kafka those of two-phase commit (KIP-939)."""

TRANSACTION_VERSION_1 = 1
"""From this level of `transaction.version` on, values are written with tagged fields."""
TRANSACTION_VERSION_2 = 2
"""From this one on, each end of a transaction raises the epoch (KIP-890)."""

NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class TransactionMetadata(NamedTuple):
    """One transactional id. Times in milliseconds since the Unix epoch."""

    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    """What follows when this transaction has ended, where the epochs of `producer_id` are used up."""
    producer_epoch: int
    last_producer_epoch: int
    """The epoch before the last bump, by which a retried InitProducerId is known. Not in the log, as in Apache Kafka:
    NO_PRODUCER_EPOCH after a load."""
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    start_ms: int
    """When the transaction began; NO_TIMESTAMP before the first one."""
    last_update_ms: int
    client_version: int
    """The transaction version by which the client acted last, 0 or 2: not the cluster's level."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer can't have a higher epoch."""
        return self.producer_epoch >= LAST_EPOCH

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the id was idle for so long that it is forgotten."""
        return self.last_update_ms <= now_ms - expiration_ms and self.state in IDLE

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether the coordinator is to abort the transaction."""
        return (
            self.state is TransactionState.ONGOING
            and self.start_ms + self.timeout_ms < now_ms
            and self.timeout_ms != NO_TIMEOUT_MS
        )


def new_producer(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """A transactional id that was not known, with epoch 0."""
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
    """The producer goes on with this epoch."""
    return _empty(before, before.producer_id, producer_epoch, last_producer_epoch, timeout_ms, now_ms)


def rotated(
    before: TransactionMetadata, producer_id: int, last_producer_epoch: int, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    """The producer goes on with another producer id, from epoch 0."""
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
    """The transaction is open and has these partitions too; it begins now where none was open."""
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
    """The transaction is decided: `state` is one of PREPARED.

    Under transactions v2 the epoch rises now, for the markers and for the client's next transaction; an abort where
    no transaction is open begins and ends one.
    """
    _check(before, state)
    producer_epoch, last_producer_epoch = before.producer_epoch, before.last_producer_epoch
    if client_version >= TRANSACTION_VERSION_2:
        last_producer_epoch = producer_epoch
        producer_epoch = min(producer_epoch + 1, FENCING_EPOCH)
    return _prepared(before, state, producer_epoch, last_producer_epoch, next_producer_id, now_ms, client_version)


def fenced(before: TransactionMetadata, next_producer_id: int, now_ms: int, version: int) -> TransactionMetadata:
    """The coordinator aborts the transaction, by the rules of `version`, the cluster's level.

    The epoch rises in either case, and once: the producer must not go on.
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
    """All markers are written. Where the epochs are used up the next producer id takes over."""
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
    """Producer id and epoch once this transaction, which is decided, has ended."""
    if prepared.next_producer_id != NO_PRODUCER_ID and prepared.client_version >= TRANSACTION_VERSION_2:
        return prepared.next_producer_id, 0
    return prepared.producer_id, prepared.producer_epoch


def _check(before: TransactionMetadata, state: TransactionState) -> None:
    if before.state not in VALID_PREVIOUS_STATES[state]:
        raise InvariantError(f"a transaction in state {before.state.label} can't become {state.label}")
