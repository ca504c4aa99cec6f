"""AlterShareGroupOffsets (91): version 0. Sets start offsets of an empty share group (KIP-932)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.metadata.image import SHARE_GROUPS_DISABLED
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import request_context
from ottla.server.handlers.groups.share_protocol import share_groups
from ottla.server.requests.api import SchemaApi, error_with_message
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.guards import Items, guard_items
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division


def handle(
    context: GroupContext, request: Request, message: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse | None:
    """Pass the request to the group coordinator, unless share groups are disabled."""
    groups = share_groups(context)
    if groups is None:
        return AlterShareGroupOffsetsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=SHARE_GROUPS_DISABLED
        )
    groups.alter_offsets(request_context(request), message, request.answer_with)
    return None


def guard(context: GroupContext, request: Request, message: AlterShareGroupOffsetsRequest) -> object | None:
    """Authorize each topic separately."""
    return guard_items(
        request,
        message,
        Items("topics", "responses", _refused),
        lambda topic: request.allowed(AclOperation.READ, ResourceType.TOPIC, topic.topic_name),
    )


def _refused(message: AlterShareGroupOffsetsRequest, code: ErrorCode, text: str) -> AlterShareGroupOffsetsResponse:
    """The error for every partition."""
    return AlterShareGroupOffsetsResponse(
        responses=[
            AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                partitions=[
                    AlterShareGroupOffsetsResponsePartition(
                        partition_index=partition.partition_index, error_code=code, error_message=text or None
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


ALTER_SHARE_GROUP_OFFSETS = SchemaApi(
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    handle,
    error_with_message(AlterShareGroupOffsetsResponse),
    guard=guard,
    needs=RequiredPermission(AclOperation.READ, ResourceType.GROUP, "group_id"),
    item_needs=(RequiredPermission(AclOperation.READ, ResourceType.TOPIC),),
).divided(Division(("topics",), "responses", items=1000, inner=(("partitions", "partitions"),)))
