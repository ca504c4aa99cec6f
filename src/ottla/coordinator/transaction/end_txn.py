"""EndTxn and the coordinator's own aborts: the decision on a transaction (KIP-98, KIP-890).

With transactions v2 (EndTxn from version 5 on) each end raises the epoch, and the response contains the new one. A
retry with the previous epoch or producer id gets the same response. Requests that are late by more than one transaction
are fenced. While the markers are being written, every request gets CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.coordinator.transaction.metadata import (
    FENCING_EPOCH,
    LAST_EPOCH,
    TRANSACTION_VERSION_2,
    TransactionMetadata,
    fenced,
    prepared,
)
from ottla.coordinator.transaction.outcome import NEEDS_PRODUCER_ID, Decision, MissingInput
from ottla.coordinator.transaction.state import COMPLETED, PREPARED, TransactionState
from ottla.record.batch import NO_PRODUCER_ID

_COMPLETE_COMMIT, _COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT


def end_v1(
    current: TransactionMetadata | None, producer_id: int, producer_epoch: int, now_ms: int, *, committed: bool
) -> Decision:
    """Decide EndTxn below version 5.

    NONE: the transaction already ended like that. Errors: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
    CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    """
    if current is None or current.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.producer_epoch != producer_epoch or producer_epoch == FENCING_EPOCH:
        return ErrorCode.PRODUCER_FENCED
    if current.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current.state is TransactionState.ONGOING:
        return prepared(current, _prepare(committed=committed), NO_PRODUCER_ID, now_ms, 0)
    ended_so = current.state is (_COMPLETE_COMMIT if committed else _COMPLETE_ABORT)
    return ErrorCode.NONE if ended_so else ErrorCode.INVALID_TXN_STATE


def end_v2(
    current: TransactionMetadata | None,
    producer_id: int,
    producer_epoch: int,
    now_ms: int,
    spare_producer_id: int | None,
    *,
    committed: bool,
) -> Decision:
    """Decide EndTxn from version 5 on. The spare producer id is used when the epochs are exhausted.

    NONE: the transaction already ended like that. An abort without open transaction is an end, too. Errors: those of
    `end_v1`; PRODUCER_FENCED for a commit of a transaction that the coordinator has aborted meanwhile (KAFKA-20785, in
    Apache Kafka after 4.4).
    """
    if current is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # Checked before the epoch: it has already risen, and the producer may be waiting for its own end (KAFKA-18464).
    if current.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    replaced = (
        current.previous_producer_id == producer_id != current.producer_id
        and producer_epoch == LAST_EPOCH
        and current.producer_epoch == 0
    )
    if current.producer_id != producer_id and not replaced:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer_epoch == FENCING_EPOCH or current.producer_epoch == FENCING_EPOCH:
        # That epoch is never assigned to a producer, and a retry must not obtain it.
        return ErrorCode.PRODUCER_FENCED
    # Only an end of v2 raises the epoch: after an end of v1 the previous epoch is that of a replaced producer.
    ended = current.state in COMPLETED and current.client_version >= TRANSACTION_VERSION_2
    again = ended and (replaced or 0 < current.producer_epoch == producer_epoch + 1)
    if not again and current.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if again:
        return _ended_before(current, committed=committed)
    if current.state is not TransactionState.ONGOING and committed:
        return ErrorCode.INVALID_TXN_STATE
    next_producer_id = _next_producer_id(current, spare_producer_id)
    if isinstance(next_producer_id, MissingInput):
        return next_producer_id
    return prepared(current, _prepare(committed=committed), next_producer_id, now_ms, TRANSACTION_VERSION_2)


def _ended_before(current: TransactionMetadata, *, committed: bool) -> ErrorCode:
    if current.state is (_COMPLETE_COMMIT if committed else _COMPLETE_ABORT):
        return ErrorCode.NONE
    return ErrorCode.PRODUCER_FENCED if committed else ErrorCode.INVALID_TXN_STATE


def abort_open(
    current: TransactionMetadata, now_ms: int, version: int, spare_producer_id: int | None
) -> TransactionMetadata | MissingInput:
    """Return the coordinator's abort of an open transaction: it timed out, or another producer takes over.

    `version` is the cluster's level of `transaction.version`, independent of the client's.
    """
    if version < TRANSACTION_VERSION_2:
        return fenced(current, NO_PRODUCER_ID, now_ms, version)
    next_producer_id = _next_producer_id(current, spare_producer_id)
    if isinstance(next_producer_id, MissingInput):
        return next_producer_id
    return fenced(current, next_producer_id, now_ms, version)


def _next_producer_id(current: TransactionMetadata, spare_producer_id: int | None) -> int | MissingInput:
    if not current.is_exhausted:
        return NO_PRODUCER_ID
    return NEEDS_PRODUCER_ID if spare_producer_id is None else spare_producer_id


def _prepare(*, committed: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
