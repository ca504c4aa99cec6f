"""DeleteGroups (42): versions 0 to 3. The group coordinator decides; its errors have no message.

Answered once the tombstones are committed.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import coordinated
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, group_denied, guard_items
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division, itself


def error_response(message: DeleteGroupsRequest, code: ErrorCode, text: str) -> DeleteGroupsResponse:
    """The error for every group."""
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id in message.groups_names]
    )


def guard(context: GroupContext, request: Request, message: DeleteGroupsRequest) -> object | None:
    """Authorize each group separately."""
    return guard_items(
        request,
        message,
        Items("groups_names", "results", error_response),
        lambda group_id: request.allowed(AclOperation.DELETE, ResourceType.GROUP, group_id),
        group_denied,
    )


DELETE_GROUPS = coordinated(
    ApiKey.DELETE_GROUPS,
    GroupCoordinator.delete_groups,
    error_response,
    guard=guard,
    item_needs=(RequiredPermission(AclOperation.DELETE, ResourceType.GROUP),),
    divisions=(Division(("groups_names",), "results", itself, mentions=1),),
)
