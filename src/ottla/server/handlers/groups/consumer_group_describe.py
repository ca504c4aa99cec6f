"""ConsumerGroupDescribe (69): versions 0 and 1. Groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi
from ottla.server.authorization import Need
from ottla.server.guards import Items, amend, group_denied, guard_items
from ottla.server.handlers.groups.consumer_protocol import CONSUMER_PROTOCOL_DISABLED, consumer_protocol_enabled
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import answering_with_operations, request_context
from ottla.server.request import Request
from ottla.server.stepped import Division, itself


def handle(
    context: GroupContext, request: Request, message: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse | None:
    """Hand the request to the group coordinator, unless the protocol is switched off."""
    if not consumer_protocol_enabled(context):
        return error_response(message, ErrorCode.UNSUPPORTED_VERSION, CONSUMER_PROTOCOL_DISABLED)
    done = answering_with_operations(request, wanted=message.include_authorized_operations)
    context.group_coordinator.consumer_group_describe(request_context(request), message, done)
    return None


def error_response(message: ConsumerGroupDescribeRequest, code: ErrorCode, text: str) -> ConsumerGroupDescribeResponse:
    """The same error for every group."""
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=code, error_message=text or None)
            for group_id in message.group_ids
        ]
    )


def guard(context: GroupContext, request: Request, message: ConsumerGroupDescribeRequest) -> object | None:
    """Each group for itself, and its members only to who may describe all topics that they name or read."""

    def hide_members(response: ConsumerGroupDescribeResponse) -> None:
        for group in response.groups:
            if not all(request.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in _topics_of(group)):
                group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                group.error_message = "The group has described topic(s) that the client is not authorized to describe."
                group.members = []

    amend(request, hide_members)
    return guard_items(
        request,
        message,
        Items("group_ids", "groups", error_response),
        lambda group_id: request.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, group_id),
        group_denied,
    )


def _topics_of(group: DescribedGroup) -> dict[str, None]:
    """The names of all topics that a description shows."""
    names: dict[str, None] = {}
    for member in group.members:
        names.update(dict.fromkeys(member.subscribed_topic_names))
        for assignment in (member.assignment, member.target_assignment):
            names.update(dict.fromkeys(topic.topic_name for topic in assignment.topic_partitions))
    return names


CONSUMER_GROUP_DESCRIBE = DeclaredApi(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    handle,
    error_response,
    guard=guard,
    item_needs=(Need(AclOperation.DESCRIBE, ResourceType.GROUP), Need(AclOperation.DESCRIBE, ResourceType.TOPIC)),
    division=Division(("group_ids",), "groups", itself, mentions=1, items=16),
)
