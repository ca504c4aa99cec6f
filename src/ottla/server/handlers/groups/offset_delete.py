"""OffsetDelete (47): version 0. All rules are the group coordinator's."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi, bare_error
from ottla.server.authorization import Need
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import answering, request_context
from ottla.server.request import Request


def handle(context: GroupContext, request: Request, message: OffsetDeleteRequest) -> None:
    """Hand the request to the group coordinator, which answers once the tombstones are committed."""
    context.group_coordinator.offset_delete(request_context(request), message, answering(request))


OFFSET_DELETE = DeclaredApi(
    ApiKey.OFFSET_DELETE,
    handle,
    bare_error(OffsetDeleteResponse),
    needs=Need(AclOperation.DELETE, ResourceType.GROUP, "group_id"),
    item_needs=(Need(AclOperation.READ, ResourceType.TOPIC),),
)
