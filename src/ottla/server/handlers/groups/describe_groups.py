"""DescribeGroups (15): versions 0 to 6. Describes classic groups; any other id is Dead, from 6 on with an error."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import answering_with_operations, request_context
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, group_denied, guard_items
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division, itself


def handle(context: GroupContext, request: Request, message: DescribeGroupsRequest) -> None:
    """Pass the request to the group coordinator; add the client's authorized operations of each group if requested."""
    done = answering_with_operations(request, wanted=message.include_authorized_operations)
    context.group_coordinator.describe_groups(request_context(request), message, done)


def error_response(message: DescribeGroupsRequest, code: ErrorCode, text: str) -> DescribeGroupsResponse:
    """The error for every group, without an error message: versions before 6 have no field for one."""
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in message.groups]
    )


def guard(context: GroupContext, request: Request, message: DescribeGroupsRequest) -> object | None:
    """Authorize each group separately."""
    return guard_items(
        request,
        message,
        Items("groups", "groups", error_response),
        lambda group_id: request.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, group_id),
        group_denied,
    )


DESCRIBE_GROUPS = SchemaApi(
    ApiKey.DESCRIBE_GROUPS,
    handle,
    error_response,
    guard=guard,
    item_needs=(RequiredPermission(AclOperation.DESCRIBE, ResourceType.GROUP),),
).divided(Division(("groups",), "groups", itself, mentions=1, items=16))
