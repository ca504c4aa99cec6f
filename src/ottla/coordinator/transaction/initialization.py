"""InitProducerId: who may produce under a transactional id from now on (KIP-98, KIP-360).

A producer that names no producer id is a new instance: whoever had the transactional id is fenced by a higher epoch.
One that names its producer id and epoch goes on after an error: if it still has the id the epoch rises, and asked again
it gets the same answer. Where a transaction is open the coordinator aborts it first, and the producer asks again.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.errors import ErrorCode
from ottla.coordinator.transaction.end_txn import abort_open
from ottla.coordinator.transaction.metadata import (
    LAST_EPOCH,
    TransactionMetadata,
    initialized,
    new_producer,
    rotated,
)
from ottla.coordinator.transaction.outcome import NEEDS_PRODUCER_ID, Decision
from ottla.coordinator.transaction.state import PREPARED, TransactionState
from ottla.record.batch import NO_PRODUCER_EPOCH


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    producer_epoch: int


def initialize(
    current: TransactionMetadata | None,
    expected: ProducerIdentity | None,
    timeout_ms: int,
    now_ms: int,
    version: int,
    spare_producer_id: int | None,
) -> Decision:
    """The producer's next epoch (state EMPTY), or the abort of what is open (PREPARE_ABORT), or an error.

    `expected` is who the producer says it is, `version` the cluster's level of `transaction.version`. A spare producer
    id is taken for a transactional id that is new or whose epochs are used up. Errors: PRODUCER_FENCED;
    CONCURRENT_TRANSACTIONS while a transaction ends.
    """
    if current is None:
        if spare_producer_id is None:
            return NEEDS_PRODUCER_ID
        return new_producer(spare_producer_id, timeout_ms, now_ms)
    if current.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if expected is not None and not _has_the_id(current, expected):
        return ErrorCode.PRODUCER_FENCED
    if current.state is TransactionState.ONGOING:
        return abort_open(current, now_ms, version, spare_producer_id)
    return _next_epoch(current, expected, timeout_ms, now_ms, spare_producer_id)


def _has_the_id(current: TransactionMetadata, expected: ProducerIdentity) -> bool:
    """Also the one before: it was replaced when its epochs were used up, and the producer may not know yet."""
    if expected.producer_id == current.producer_id:
        return True
    return expected.producer_id == current.previous_producer_id and expected.producer_epoch >= LAST_EPOCH


def _next_epoch(
    current: TransactionMetadata,
    expected: ProducerIdentity | None,
    timeout_ms: int,
    now_ms: int,
    spare_producer_id: int | None,
) -> Decision:
    """Apache Kafka answers a producer that is behind UNKNOWN_SERVER_ERROR where the epochs are used up; here it is
    fenced, or gets the same answer again, as at any other epoch."""
    epoch = current.producer_epoch
    if expected is None:
        last_epoch = NO_PRODUCER_EPOCH
    elif expected.producer_epoch == epoch:
        last_epoch = epoch
    elif expected.producer_epoch == current.last_producer_epoch:
        # Nobody was initialized in between: a new instance leaves no last epoch. The producer id before stays known,
        # so that the third request is answered as the second one; Apache Kafka would fence it where the id changed.
        again = initialized(current, epoch, current.last_producer_epoch, timeout_ms, now_ms)
        return again._replace(previous_producer_id=current.previous_producer_id)
    else:
        return ErrorCode.PRODUCER_FENCED
    if not current.is_exhausted:
        return initialized(current, epoch + 1, last_epoch, timeout_ms, now_ms)
    if spare_producer_id is None:
        return NEEDS_PRODUCER_ID
    return rotated(current, spare_producer_id, last_epoch, timeout_ms, now_ms)
