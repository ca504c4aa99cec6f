"""JoinGroup (11): versions 0 to 9. The group coordinator decides and answers after the rebalance."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.group_requests import coordinated
from ottla.server.requests.authorization import RequiredPermission


def error_response(message: JoinGroupRequest, code: ErrorCode, text: str) -> JoinGroupResponse:
    """The error for this member."""
    return JoinGroupResponse(error_code=code, member_id=message.member_id)


JOIN_GROUP = coordinated(
    ApiKey.JOIN_GROUP,
    GroupCoordinator.join_group,
    error_response,
    needs=RequiredPermission(AclOperation.READ, ResourceType.GROUP, "group_id"),
)
