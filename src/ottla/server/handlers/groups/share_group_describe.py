"""ShareGroupDescribe (77): version 1. Share groups with their members (KIP-932)."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.metadata.image import SHARE_GROUPS_DISABLED
from ottla.protocol.messages.share_group_describe import (
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import described_groups, request_context
from ottla.server.handlers.groups.share_protocol import share_groups
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, group_denied, guard_items
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division, itself


def handle(
    context: GroupContext, request: Request, message: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse | None:
    """Pass the request to the group coordinator, unless share groups are disabled."""
    groups = share_groups(context)
    if groups is None:
        return error_response(message, ErrorCode.UNSUPPORTED_VERSION, SHARE_GROUPS_DISABLED)

    def described(steps: Generator[None, None, ShareGroupDescribeResponse]) -> None:
        wanted = message.include_authorized_operations
        request.answer(lambda: described_groups(request, steps, topics_of, wanted=wanted))

    groups.operations.description(request_context(request), message, described)
    return None


def error_response(message: ShareGroupDescribeRequest, code: ErrorCode, text: str) -> ShareGroupDescribeResponse:
    """The error for every group."""
    return ShareGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=code, error_message=text or None)
            for group_id in message.group_ids
        ]
    )


def guard(context: GroupContext, request: Request, message: ShareGroupDescribeRequest) -> object | None:
    """Authorize each group separately."""
    return guard_items(
        request,
        message,
        Items("group_ids", "groups", error_response),
        lambda group_id: request.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, group_id),
        group_denied,
    )


def topics_of(member: Member) -> Iterator[str]:
    """The names of all topics in the description of a member."""
    yield from member.subscribed_topic_names
    for topic in member.assignment.topic_partitions:
        yield topic.topic_name


SHARE_GROUP_DESCRIBE = SchemaApi(
    ApiKey.SHARE_GROUP_DESCRIBE,
    handle,
    error_response,
    guard=guard,
    item_needs=(
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.GROUP),
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
).divided(Division(("group_ids",), "groups", itself, mentions=1, items=16))
