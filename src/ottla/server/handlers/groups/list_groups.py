"""ListGroups (16): versions 0 to 5. The groups that this broker coordinates, from all its shards."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.list_groups import ListGroupsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import bare_error
from ottla.server.authorization import Need
from ottla.server.handlers.groups.group_requests import coordinated

LIST_GROUPS = coordinated(
    ApiKey.LIST_GROUPS,
    GroupCoordinator.list_groups,
    bare_error(ListGroupsResponse),
    item_needs=(Need(AclOperation.DESCRIBE, ResourceType.CLUSTER), Need(AclOperation.DESCRIBE, ResourceType.GROUP)),
)
