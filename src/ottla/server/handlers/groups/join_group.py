"""JoinGroup (11): versions 0 to 9. All rules are the group coordinator's."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi
from ottla.server.authorization import Need
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import answering, request_context
from ottla.server.request import Request


def handle(context: GroupContext, request: Request, message: JoinGroupRequest) -> None:
    """Hand the request to the group coordinator, which answers once the rebalance is over."""
    context.group_coordinator.join_group(request_context(request), message, answering(request))


def error_response(message: JoinGroupRequest, code: ErrorCode, text: str) -> JoinGroupResponse:
    """The error for this member."""
    return JoinGroupResponse(error_code=code, member_id=message.member_id)


JOIN_GROUP = DeclaredApi(
    ApiKey.JOIN_GROUP,
    handle,
    error_response,
    needs=Need(AclOperation.READ, ResourceType.GROUP, "group_id"),
)
