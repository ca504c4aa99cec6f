"""DescribeShareGroupOffsets (90): versions 0 and 1. Start offsets of share groups (KIP-932).

The lag is known for partitions with a leader that answers. A topic without permission has an error for each partition,
or is left out of the description of all topics.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.metadata.image import SHARE_GROUPS_DISABLED
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.share_protocol import share_groups
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import DENIED_TEXT, RequiredPermission, split_allowed
from ottla.server.requests.guards import Items, amend, group_denied, guard_items
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division

UNKNOWN_OFFSET = -1


def handle(
    context: GroupContext, request: Request, message: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse | None:
    """Pass the request to the group coordinator, unless share groups are disabled."""
    groups = share_groups(context)
    if groups is None:
        return error_response(message, ErrorCode.UNSUPPORTED_VERSION, SHARE_GROUPS_DISABLED)
    groups.describe_offsets(message, request.answer_with)
    return None


def error_response(
    message: DescribeShareGroupOffsetsRequest, code: ErrorCode, text: str
) -> DescribeShareGroupOffsetsResponse:
    """The error for every group."""
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, error_code=code, error_message=text or None)
            for group in message.groups
        ]
    )


def guard(context: GroupContext, request: Request, message: DescribeShareGroupOffsetsRequest) -> object | None:
    """Authorize each group and each topic separately."""
    refused: dict[str, list[DescribeShareGroupOffsetsResponseTopic]] = {}

    def allowed(name: str, *, audit: bool = True) -> bool:
        return request.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name, audit=audit)

    def group_allowed(group: DescribeShareGroupOffsetsRequestGroup) -> bool:
        if not request.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            return False
        if group.topics is not None:
            group.topics, denied = split_allowed(group.topics, lambda topic: allowed(topic.topic_name))
            refused[group.group_id] = [_denied(topic) for topic in denied]
        return True

    def changed(response: DescribeShareGroupOffsetsResponse) -> None:
        for group in response.groups:
            if group.group_id in refused:
                group.topics += refused[group.group_id]
            else:
                group.topics = [topic for topic in group.topics if allowed(topic.topic_name, audit=False)]

    amend(request, changed)
    return guard_items(request, message, Items("groups", "groups", error_response), group_allowed, group_denied)


def _denied(topic: DescribeShareGroupOffsetsRequestTopic) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=partition,
                start_offset=UNKNOWN_OFFSET,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                error_message=DENIED_TEXT,
            )
            for partition in topic.partitions
        ],
    )


DESCRIBE_SHARE_GROUP_OFFSETS = SchemaApi(
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    handle,
    error_response,
    guard=guard,
    item_needs=(
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.GROUP),
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
).divided(Division(("groups",), "groups", lambda group: group.group_id, mentions=1, items=16))
