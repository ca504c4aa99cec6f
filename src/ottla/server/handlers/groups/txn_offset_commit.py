"""TxnOffsetCommit (28): versions 0 to 6. The group coordinator decides and answers after the commit."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import coordinated
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, guard_items, topic_name
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division


def error_response(message: TxnOffsetCommitRequest, code: ErrorCode, text: str) -> TxnOffsetCommitResponse:
    """The error for every partition."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def guard(context: GroupContext, request: Request, message: TxnOffsetCommitRequest) -> object | None:
    """A group may commit offsets of topics that the client may read."""
    if not request.allowed(AclOperation.READ, ResourceType.GROUP, message.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    image = context.metadata.image

    def may_read(topic: TxnOffsetCommitRequestTopic) -> bool:
        name = topic_name(image, topic.name or bytes(topic.topic_id))
        return name is None or request.allowed(AclOperation.READ, ResourceType.TOPIC, name)

    return guard_items(request, message, Items("topics", "topics", error_response), may_read)


TXN_OFFSET_COMMIT = coordinated(
    ApiKey.TXN_OFFSET_COMMIT,
    GroupCoordinator.txn_offset_commit,
    error_response,
    guard=guard,
    needs=RequiredPermission(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
    item_needs=(
        RequiredPermission(AclOperation.READ, ResourceType.GROUP),
        RequiredPermission(AclOperation.READ, ResourceType.TOPIC),
    ),
    divisions=(Division(("topics",), "topics", items=1000, inner=(("partitions", "partitions"),)),),
)
