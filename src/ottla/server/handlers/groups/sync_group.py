"""SyncGroup (14): versions 0 to 5. All rules are the group coordinator's."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi, bare_error
from ottla.server.authorization import Need
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import answering, request_context
from ottla.server.request import Request


def handle(context: GroupContext, request: Request, message: SyncGroupRequest) -> None:
    """Hand the request to the group coordinator, which answers once the assignment is committed."""
    context.group_coordinator.sync_group(request_context(request), message, answering(request))


SYNC_GROUP = DeclaredApi(
    ApiKey.SYNC_GROUP,
    handle,
    bare_error(SyncGroupResponse),
    needs=Need(AclOperation.READ, ResourceType.GROUP, "group_id"),
)
