"""LeaveGroup (13): versions 0 to 5. All rules are the group coordinator's, which answers when the members are gone."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.leave_group import LeaveGroupResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import bare_error
from ottla.server.authorization import Need
from ottla.server.handlers.groups.group_requests import coordinated

LEAVE_GROUP = coordinated(
    ApiKey.LEAVE_GROUP,
    GroupCoordinator.leave_group,
    bare_error(LeaveGroupResponse),
    needs=Need(AclOperation.READ, ResourceType.GROUP, "group_id"),
)
