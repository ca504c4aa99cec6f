"""OffsetCommit (8). The group coordinator decides and answers after the commit; version 0 differs if ZooKeeper
stores the cluster (`zookeeper_offsets`)."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import coordinated, guard_read_topics
from ottla.server.requests.api import partition_errors
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division

error_response = partition_errors(
    OffsetCommitResponse, OffsetCommitResponseTopic, OffsetCommitResponsePartition, by_id=True
)


def guard(context: GroupContext, request: Request, message: OffsetCommitRequest) -> object | None:
    """A group may commit offsets of topics that the client may read."""
    return guard_read_topics(context, request, message, error_response)


OFFSET_COMMIT = coordinated(
    ApiKey.OFFSET_COMMIT,
    GroupCoordinator.offset_commit,
    error_response,
    guard=guard,
    needs=RequiredPermission(AclOperation.READ, ResourceType.GROUP, "group_id"),
    item_needs=(RequiredPermission(AclOperation.READ, ResourceType.TOPIC),),
    divisions=(Division(("topics",), "topics", items=1000, inner=(("partitions", "partitions"),)),),
)
