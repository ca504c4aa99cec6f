"""AddPartitionsToTxn (24): versions 0 to 5. Authorization is checked here; the transaction coordinator decides.

Up to version 3 a client names the partitions of its transaction, without internal topics; offsets use
AddOffsetsToTxn. From 4 on brokers send the request for clients whose Produce or TxnOffsetCommit they serve (KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.common.kafka.internal_topics import INTERNAL_TOPICS
from ottla.coordinator.transaction.coordinator import FIRST_BATCHED_ADD_PARTITIONS
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.transactions.context import TransactionContext
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(
    context: TransactionContext, request: Request, message: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | None:
    """Pass the authorized partitions to the coordinator."""
    if request.api_version >= FIRST_BATCHED_ADD_PARTITIONS:
        if not request.allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        topics = [topic for transaction in message.transactions for topic in transaction.topics]
    else:
        transactional_id, topics = message.v3_and_below_transactional_id, message.v3_and_below_topics
        if not request.allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        refused = {topic.name for topic in topics if not _may_write(request, topic.name)}
        if refused:
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_refusals(topics, refused))
    context.check_partition_count(sum(len(topic.partitions) for topic in topics))
    context.coordinator.add_partitions_to_txn(request.api_version, message, request.answer_with)
    return None


def _may_write(request: Request, topic: str) -> bool:
    return topic not in INTERNAL_TOPICS and request.allowed(AclOperation.WRITE, ResourceType.TOPIC, topic)


def _refusals(topics: Sequence[AddPartitionsToTxnTopic], refused: set[str]) -> list[AddPartitionsToTxnTopicResult]:
    """Errors of refused topics; the other topics are not added."""
    return [
        _result(
            topic,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED if topic.name in refused else ErrorCode.OPERATION_NOT_ATTEMPTED,
        )
        for topic in topics
    ]


def _result(topic: AddPartitionsToTxnTopic, code: ErrorCode) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            for index in topic.partitions
        ],
    )


def error_response(message: AddPartitionsToTxnRequest, code: ErrorCode, text: str) -> AddPartitionsToTxnResponse:
    """The error at the top and for every partition of a client: a version writes the one it has."""
    return AddPartitionsToTxnResponse(
        error_code=code,
        results_by_topic_v3_and_below=[_result(topic, code) for topic in message.v3_and_below_topics],
    )


ADD_PARTITIONS_TO_TXN = SchemaApi(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    handle,
    error_response,
    item_needs=(
        RequiredPermission(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
        RequiredPermission(AclOperation.WRITE, ResourceType.TOPIC),
        RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
    ),
)
