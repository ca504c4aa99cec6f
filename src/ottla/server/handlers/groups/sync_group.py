"""SyncGroup (14): versions 0 to 5. The group coordinator decides and answers with a committed assignment."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.sync_group import SyncGroupResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.group_requests import coordinated
from ottla.server.requests.api import bare_error
from ottla.server.requests.authorization import RequiredPermission

SYNC_GROUP = coordinated(
    ApiKey.SYNC_GROUP,
    GroupCoordinator.sync_group,
    bare_error(SyncGroupResponse),
    needs=RequiredPermission(AclOperation.READ, ResourceType.GROUP, "group_id"),
)
