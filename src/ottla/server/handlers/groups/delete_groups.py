"""DeleteGroups (42): versions 0 to 3. The group coordinator decides; its errors have no message.

Answered once the tombstones are committed. The share state of a share group is deleted first.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import request_context
from ottla.server.handlers.groups.share_protocol import share_groups
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, group_denied, guard_items
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division, itself


def handle(context: GroupContext, request: Request, message: DeleteGroupsRequest) -> None:
    """Pass the request to the group coordinator, by way of the share groups if there may be any."""
    requester, respond = request_context(request), request.answer_with
    groups = share_groups(context)
    if groups is None:
        context.group_coordinator.delete_groups(requester, message, respond)
    else:
        groups.delete_groups(requester, message, respond)


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


DELETE_GROUPS = SchemaApi(
    ApiKey.DELETE_GROUPS,
    handle,
    error_response,
    guard=guard,
    item_needs=(RequiredPermission(AclOperation.DELETE, ResourceType.GROUP),),
).divided(Division(("groups_names",), "results", itself, mentions=1))
