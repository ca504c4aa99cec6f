"""Heartbeat (12): versions 0 to 4. The group coordinator decides and answers at once."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.group_requests import coordinated
from ottla.server.requests.api import bare_error
from ottla.server.requests.authorization import RequiredPermission

HEARTBEAT = coordinated(
    ApiKey.HEARTBEAT,
    GroupCoordinator.heartbeat,
    bare_error(HeartbeatResponse),
    needs=RequiredPermission(AclOperation.READ, ResourceType.GROUP, "group_id"),
)
