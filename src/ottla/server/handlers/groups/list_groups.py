"""ListGroups (16): versions 0 to 5. The groups that this broker coordinates."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.protocol.messages.list_groups import (
    ListGroupsRequest,
    ListGroupsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi, bare_error
from ottla.server.authorization import Need
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import answering, request_context
from ottla.server.request import Request


def handle(context: GroupContext, request: Request, message: ListGroupsRequest) -> None:
    """Hand the request to the group coordinator, which answers from all its shards."""
    context.group_coordinator.list_groups(request_context(request), message, answering(request))


LIST_GROUPS = DeclaredApi(
    ApiKey.LIST_GROUPS,
    handle,
    bare_error(ListGroupsResponse),
    item_needs=(Need(AclOperation.DESCRIBE, ResourceType.CLUSTER), Need(AclOperation.DESCRIBE, ResourceType.GROUP)),
)
