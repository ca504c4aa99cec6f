"""OffsetDelete (47): version 0. The group coordinator decides and answers after the commit."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import coordinated
from ottla.server.requests.api import bare_error, partition_errors
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, guard_items
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division

_refuse = partition_errors(OffsetDeleteResponse, OffsetDeleteResponseTopic, OffsetDeleteResponsePartition)


def guard(context: GroupContext, request: Request, message: OffsetDeleteRequest) -> object | None:
    """READ on a topic permits deleting its offsets."""
    return guard_items(
        request,
        message,
        Items("topics", "topics", _refuse),
        lambda topic: request.allowed(AclOperation.READ, ResourceType.TOPIC, topic.name),
    )


OFFSET_DELETE = coordinated(
    ApiKey.OFFSET_DELETE,
    GroupCoordinator.offset_delete,
    bare_error(OffsetDeleteResponse),
    guard=guard,
    needs=RequiredPermission(AclOperation.DELETE, ResourceType.GROUP, "group_id"),
    item_needs=(RequiredPermission(AclOperation.READ, ResourceType.TOPIC),),
    divisions=(Division(("topics",), "topics", items=1000, inner=(("partitions", "partitions"),)),),
)
