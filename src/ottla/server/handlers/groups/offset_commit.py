"""OffsetCommit (8). The group coordinator decides and answers after the commit; version 0 differs if ZooKeeper
stores the cluster."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import coordinated
from ottla.server.handlers.groups.zookeeper_offsets import commit_offsets
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, guard_items, topic_name
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division


def error_response(message: OffsetCommitRequest, code: ErrorCode, text: str) -> OffsetCommitResponse:
    """The error for every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def guard(context: GroupContext, request: Request, message: OffsetCommitRequest) -> object | None:
    """A group may commit offsets of topics that the client may read."""
    image = context.metadata.image

    def may_read(topic: OffsetCommitRequestTopic) -> bool:
        name = topic_name(image, topic.name or bytes(topic.topic_id))
        return name is None or request.allowed(AclOperation.READ, ResourceType.TOPIC, name)

    return guard_items(request, message, Items("topics", "topics", error_response), may_read)


OFFSET_COMMIT = coordinated(
    ApiKey.OFFSET_COMMIT,
    GroupCoordinator.offset_commit,
    error_response,
    guard=guard,
    in_zookeeper=commit_offsets,
    needs=RequiredPermission(AclOperation.READ, ResourceType.GROUP, "group_id"),
    item_needs=(RequiredPermission(AclOperation.READ, ResourceType.TOPIC),),
    divisions=(Division(("topics",), "topics", items=1000, inner=(("partitions", "partitions"),)),),
)
