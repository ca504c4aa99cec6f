"""AddPartitionsToTxn: registers a transaction's partitions before the first write, and verifies them (KIP-890)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.coordinator.transaction.metadata import FENCING_EPOCH, TransactionMetadata, partitions_added
from ottla.coordinator.transaction.state import PREPARED, TransactionState


def add(
    current: TransactionMetadata | None,
    producer_id: int,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> TransactionMetadata | ErrorCode:
    """Return the transaction with these partitions added; NONE if it already has them. Opens one if none is open.

    Errors: INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS while the last one ends, PRODUCER_FENCED.
    """
    if current is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.producer_epoch != producer_epoch or producer_epoch == FENCING_EPOCH:
        return ErrorCode.PRODUCER_FENCED
    if current.state is TransactionState.ONGOING and partitions <= current.partitions:
        return ErrorCode.NONE
    return partitions_added(current, partitions, now_ms, client_version)


def verify(
    current: TransactionMetadata | None,
    producer_id: int,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Return for each partition NONE if it belongs to the open transaction, else TRANSACTION_ABORTABLE.

    Errors for all partitions: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """
    if current is None or current.producer_id != producer_id:
        return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.producer_epoch != producer_epoch:
        return dict.fromkeys(partitions, ErrorCode.PRODUCER_FENCED)
    if current.state in PREPARED:
        return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
    known = current.partitions
    return {
        partition: ErrorCode.NONE if partition in known else ErrorCode.TRANSACTION_ABORTABLE
        for partition in sorted(partitions)
    }
