"""ConsumerGroupDescribe (69): versions 0 and 1. Groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.consumer_protocol import CONSUMER_PROTOCOL_DISABLED, consumer_protocol_enabled
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import described_groups, request_context
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, group_denied, guard_items
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division, itself


def handle(
    context: GroupContext, request: Request, message: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse | None:
    """Pass the request to the group coordinator, unless the protocol is disabled."""
    if not consumer_protocol_enabled(context):
        return error_response(message, ErrorCode.UNSUPPORTED_VERSION, CONSUMER_PROTOCOL_DISABLED)

    def described(steps: Generator[None, None, ConsumerGroupDescribeResponse]) -> None:
        wanted = message.include_authorized_operations
        request.answer(lambda: described_groups(request, steps, _topics_of, wanted=wanted))

    context.group_coordinator.consumer_group_description(request_context(request), message, described)
    return None


def error_response(message: ConsumerGroupDescribeRequest, code: ErrorCode, text: str) -> ConsumerGroupDescribeResponse:
    """The error for every group."""
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=code, error_message=text or None)
            for group_id in message.group_ids
        ]
    )


def guard(context: GroupContext, request: Request, message: ConsumerGroupDescribeRequest) -> object | None:
    """Authorize each group separately."""
    return guard_items(
        request,
        message,
        Items("group_ids", "groups", error_response),
        lambda group_id: request.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, group_id),
        group_denied,
    )


def _topics_of(member: Member) -> Iterator[str]:
    """The names of all topics in the description of a member."""
    yield from member.subscribed_topic_names
    for assignment in (member.assignment, member.target_assignment):
        for topic in assignment.topic_partitions:
            yield topic.topic_name


CONSUMER_GROUP_DESCRIBE = SchemaApi(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    handle,
    error_response,
    guard=guard,
    item_needs=(
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.GROUP),
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
).divided(Division(("group_ids",), "groups", itself, mentions=1, items=16))
