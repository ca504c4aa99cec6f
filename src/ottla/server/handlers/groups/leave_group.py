"""LeaveGroup (13): versions 0 to 5. All rules are the group coordinator's."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi, bare_error
from ottla.server.authorization import Need
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import answering, request_context
from ottla.server.request import Request


def handle(context: GroupContext, request: Request, message: LeaveGroupRequest) -> None:
    """Hand the request to the group coordinator, which answers once the members are gone."""
    context.group_coordinator.leave_group(request_context(request), message, answering(request))


LEAVE_GROUP = DeclaredApi(
    ApiKey.LEAVE_GROUP,
    handle,
    bare_error(LeaveGroupResponse),
    needs=Need(AclOperation.READ, ResourceType.GROUP, "group_id"),
)
