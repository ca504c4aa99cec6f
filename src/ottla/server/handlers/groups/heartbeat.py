"""Heartbeat (12): versions 0 to 4. All rules are the group coordinator's."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.protocol.messages.heartbeat import (
    HeartbeatRequest,
    HeartbeatResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi, bare_error
from ottla.server.authorization import Need
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import answering, request_context
from ottla.server.request import Request


def handle(context: GroupContext, request: Request, message: HeartbeatRequest) -> None:
    """Hand the request to the group coordinator, which answers at once."""
    context.group_coordinator.heartbeat(request_context(request), message, answering(request))


HEARTBEAT = DeclaredApi(
    ApiKey.HEARTBEAT,
    handle,
    bare_error(HeartbeatResponse),
    needs=Need(AclOperation.READ, ResourceType.GROUP, "group_id"),
)
