"""DeleteGroups (42): versions 0 to 3. All rules are the group coordinator's; no error of it has a message."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi
from ottla.server.authorization import Need
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import answering, request_context
from ottla.server.request import Request


def handle(context: GroupContext, request: Request, message: DeleteGroupsRequest) -> None:
    """Hand the request to the group coordinator, which answers once the tombstones are committed."""
    context.group_coordinator.delete_groups(request_context(request), message, answering(request))


def error_response(message: DeleteGroupsRequest, code: ErrorCode, text: str) -> DeleteGroupsResponse:
    """The same error for every group."""
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id in message.groups_names]
    )


DELETE_GROUPS = DeclaredApi(
    ApiKey.DELETE_GROUPS,
    handle,
    error_response,
    item_needs=(Need(AclOperation.DELETE, ResourceType.GROUP),),
)
