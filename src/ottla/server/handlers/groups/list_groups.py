"""ListGroups (16): versions 0 to 5. The groups that this broker coordinates, from all its shards."""

from __future__ import annotations

from collections.abc import Generator

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import amend_in_steps
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Steps


def handle(context: GroupContext, request: Request, message: ListGroupsRequest) -> Steps:
    """Pass the request to the group coordinator."""
    return context.group_coordinator.listing(message)


def guard(context: GroupContext, request: Request, message: ListGroupsRequest) -> None:
    """DESCRIBE on the cluster permits listing all groups; otherwise only groups with DESCRIBE are listed."""

    def keep_allowed(response: ListGroupsResponse) -> Generator[None, None, None]:
        kept = []
        for group in response.groups:
            if request.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id, audit=False):
                kept.append(group)
            yield
        response.groups = kept

    if not request.allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER, audit=False):
        amend_in_steps(request, keep_allowed)


LIST_GROUPS = SchemaApi(
    ApiKey.LIST_GROUPS,
    handle,
    bare_error(ListGroupsResponse),
    guard=guard,
    item_needs=(
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.CLUSTER),
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.GROUP),
    ),
)
