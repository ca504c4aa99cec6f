"""Table of the transaction coordinator's shard operations, one row for each kind of request.

The context of a row is the API version; `request` is the argument of its `key` and `run`: the message, or a part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.coordinator.runtime import CoordinatorOperation
from ottla.coordinator.transaction import responses
from ottla.coordinator.transaction.initialization import ProducerIdentity
from ottla.coordinator.transaction.listing import describe
from ottla.coordinator.transaction.metadata import TRANSACTION_VERSION_2
from ottla.coordinator.transaction.records import MAX_ID_BYTES
from ottla.coordinator.transaction.shard import ProducerIdResult
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from ottla.protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.record.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

FIRST_END_TXN_V2 = 5
"""First EndTxn version of transactions v2, independent of the cluster's level."""

Q = TypeVar("Q")

PartitionCodes = Mapping[TopicPartition, ErrorCode]


class ProducerIdRequest(NamedTuple, Generic[Q]):
    """A request that may need a producer id: None at first, allocated when the shard requires it."""

    request: Q
    spare_producer_id: int | None


class PartitionsOf(NamedTuple):
    """Partitions of one transaction to add or verify."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    client_version: int


def named(transactional_id: str) -> str:
    """Return the transactional id. Raises KafkaError INVALID_REQUEST if it is invalid."""
    if not transactional_id or len(transactional_id.encode()) > MAX_ID_BYTES:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return transactional_id


# --- producers --------------------------------------------------------------------------------------------------------


def _initialize(api_version: int, asked: ProducerIdRequest[InitProducerIdRequest], shard: Any) -> Any:
    request = asked.request
    expected = None
    if request.producer_id != NO_PRODUCER_ID or request.producer_epoch != NO_PRODUCER_EPOCH:
        expected = ProducerIdentity(request.producer_id, request.producer_epoch)
    return shard.initialize(request.transactional_id, expected, request.transaction_timeout_ms, asked.spare_producer_id)


INIT_PRODUCER_ID: CoordinatorOperation[int, ProducerIdRequest[InitProducerIdRequest], InitProducerIdResponse] = (
    CoordinatorOperation(
        "init-producer-id",
        key=lambda asked: named(asked.request.transactional_id or ""),
        run=_initialize,
        refused=lambda version, asked, error: responses.initialized(
            version, ProducerIdResult(responses.error_code(error))
        ),
        answered=lambda version, asked, answer: responses.initialized(version, answer),
    )
)


def _end(api_version: int, asked: ProducerIdRequest[EndTxnRequest], shard: Any) -> Any:
    request = asked.request
    return shard.end(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        TRANSACTION_VERSION_2 if api_version >= FIRST_END_TXN_V2 else 0,
        asked.spare_producer_id,
        committed=request.committed,
    )


END_TXN: CoordinatorOperation[int, ProducerIdRequest[EndTxnRequest], EndTxnResponse] = CoordinatorOperation(
    "end-txn",
    key=lambda asked: named(asked.request.transactional_id),
    run=_end,
    refused=lambda version, asked, error: responses.ended(version, ProducerIdResult(responses.error_code(error))),
    answered=lambda version, asked, answer: responses.ended(version, answer),
)

# --- partitions -------------------------------------------------------------------------------------------------------


def _all(asked: PartitionsOf, code: ErrorCode) -> PartitionCodes:
    return dict.fromkeys(sorted(asked.partitions), code)


ADD_PARTITIONS: CoordinatorOperation[int, PartitionsOf, PartitionCodes] = CoordinatorOperation(
    "add-partitions-to-txn",
    key=lambda asked: named(asked.transactional_id),
    run=lambda version, asked, shard: shard.add_partitions(*asked),
    refused=lambda version, asked, error: _all(asked, responses.error_code(error)),
    answered=lambda version, asked, code: _all(asked, code),
)

ADD_OFFSETS: CoordinatorOperation[int, PartitionsOf, AddOffsetsToTxnResponse] = CoordinatorOperation(
    "add-offsets-to-txn",
    key=lambda asked: named(asked.transactional_id),
    run=lambda version, asked, shard: shard.add_partitions(*asked),
    refused=lambda version, asked, error: responses.offsets_added(version, responses.error_code(error)),
    answered=lambda version, asked, code: responses.offsets_added(version, code),
)

VERIFY_PARTITIONS: CoordinatorOperation[int, PartitionsOf, PartitionCodes] = CoordinatorOperation(
    "verify-partitions-in-txn",
    key=lambda asked: named(asked.transactional_id),
    run=lambda version, asked, shard: shard.verify_partitions(*asked[:4]),
    refused=lambda version, asked, error: _all(asked, responses.error_code(error)),
)

# --- describe and list ------------------------------------------------------------------------------------------------

DESCRIBE: CoordinatorOperation[int, str, DescribedTransaction] = CoordinatorOperation(
    "describe-transactions",
    key=named,
    run=lambda version, transactional_id, shard, committed: describe(
        transactional_id, shard.transactions.get_at(transactional_id, committed)
    ),
    refused=lambda version, transactional_id, error: DescribedTransaction(
        transactional_id=transactional_id, error_code=error.code
    ),
    reads=True,
)

LIST = "list-transactions"
"""Name of the operation; each of its steps counts as one."""
