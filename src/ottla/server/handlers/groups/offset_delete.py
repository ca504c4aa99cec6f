"""OffsetDelete (47): version 0. All rules are the group coordinator's, which answers when it is committed."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.offset_delete import OffsetDeleteResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import bare_error
from ottla.server.authorization import Need
from ottla.server.handlers.groups.group_requests import coordinated

OFFSET_DELETE = coordinated(
    ApiKey.OFFSET_DELETE,
    GroupCoordinator.offset_delete,
    bare_error(OffsetDeleteResponse),
    needs=Need(AclOperation.DELETE, ResourceType.GROUP, "group_id"),
    item_needs=(Need(AclOperation.READ, ResourceType.TOPIC),),
)
