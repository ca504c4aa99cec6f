"""LeaveGroup (13): versions 0 to 5. The group coordinator decides and answers after removing the members."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.leave_group import LeaveGroupResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.group_requests import coordinated
from ottla.server.requests.api import bare_error
from ottla.server.requests.authorization import RequiredPermission

LEAVE_GROUP = coordinated(
    ApiKey.LEAVE_GROUP,
    GroupCoordinator.leave_group,
    bare_error(LeaveGroupResponse),
    needs=RequiredPermission(AclOperation.READ, ResourceType.GROUP, "group_id"),
)
