"""LeaveGroup (13): versions 0 to 5. All rules are the group coordinator's."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.handlers.groups.group_requests import answering, request_context
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: LeaveGroupRequest) -> None:
    """Hand the request to the group coordinator, which answers once the members are gone."""
    context.group_coordinator.leave_group(request_context(request), message, answering(request))


def error_response(message: LeaveGroupRequest, code: ErrorCode, text: str) -> LeaveGroupResponse:
    """The bare error."""
    return LeaveGroupResponse(error_code=code)


LEAVE_GROUP = DeclaredApi(ApiKey.LEAVE_GROUP, handle, error_response)
