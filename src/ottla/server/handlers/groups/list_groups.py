"""ListGroups (16): versions 0 to 5. The groups that this broker coordinates, from all its shards."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import bare_error
from ottla.server.authorization import Need
from ottla.server.guards import amend
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import coordinated
from ottla.server.request import Request


def guard(context: GroupContext, request: Request, message: ListGroupsRequest) -> None:
    """Who may describe the cluster hears of all groups, anybody else of those that it may describe."""

    def keep_allowed(response: ListGroupsResponse) -> None:
        response.groups = [
            group
            for group in response.groups
            if request.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id, told=False)
        ]

    if not request.allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER, told=False):
        amend(request, keep_allowed)


LIST_GROUPS = coordinated(
    ApiKey.LIST_GROUPS,
    GroupCoordinator.list_groups,
    bare_error(ListGroupsResponse),
    guard=guard,
    item_needs=(Need(AclOperation.DESCRIBE, ResourceType.CLUSTER), Need(AclOperation.DESCRIBE, ResourceType.GROUP)),
)
