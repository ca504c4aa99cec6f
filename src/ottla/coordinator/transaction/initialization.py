"""InitProducerId: the producer id and epoch for the next producer of a transactional id (KIP-98, KIP-360).

A producer without producer id is a new instance: a higher epoch fences the previous owner. A producer that sends its id
and epoch continues after an error: the epoch rises if id and epoch are current, and a retry gets the same response.
The coordinator aborts an open transaction first, and the producer retries.
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
    """Return the producer's next epoch (state EMPTY), the abort of an open transaction (PREPARE_ABORT), an error, or
    NEEDS_PRODUCER_ID: call again with a spare id.

    `expected` is the identity that the producer sent, `version` the cluster's level of `transaction.version`. The spare
    producer id is used for a new transactional id, or when epochs are exhausted. Errors: PRODUCER_FENCED;
    CONCURRENT_TRANSACTIONS while a transaction ends.
    """
    if current is None:
        if spare_producer_id is None:
            return NEEDS_PRODUCER_ID
        return new_producer(spare_producer_id, timeout_ms, now_ms)
    if current.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if expected is not None and not _owns_id(current, expected):
        return ErrorCode.PRODUCER_FENCED
    if current.state is TransactionState.ONGOING:
        return abort_open(current, now_ms, version, spare_producer_id)
    return _next_epoch(current, expected, timeout_ms, now_ms, spare_producer_id)


def _owns_id(current: TransactionMetadata, expected: ProducerIdentity) -> bool:
    """Also accepts the previous id, replaced when its epochs were exhausted: the producer may not know yet."""
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
    """Decide the next epoch of an idle id.

    Apache Kafka returns UNKNOWN_SERVER_ERROR to a producer that is behind when the epochs are exhausted; here it is
    fenced, or gets the same response again, as at any other epoch.
    """
    epoch = current.producer_epoch
    if expected is None:
        last_epoch = NO_PRODUCER_EPOCH
    elif expected.producer_epoch == epoch:
        last_epoch = epoch
    elif expected.producer_epoch == current.last_producer_epoch:
        # A retry: a new instance would have cleared the last epoch. The previous producer id is retained, so that a
        # third request gets the same response as the second; Apache Kafka would fence it if the id changed.
        again = initialized(current, epoch, current.last_producer_epoch, timeout_ms, now_ms)
        return again._replace(previous_producer_id=current.previous_producer_id)
    else:
        return ErrorCode.PRODUCER_FENCED
    if not current.is_exhausted:
        return initialized(current, epoch + 1, last_epoch, timeout_ms, now_ms)
    if spare_producer_id is None:
        return NEEDS_PRODUCER_ID
    return rotated(current, spare_producer_id, last_epoch, timeout_ms, now_ms)
