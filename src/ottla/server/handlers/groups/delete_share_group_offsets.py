"""DeleteShareGroupOffsets (92): version 0. Deletes the share state of topics in an empty share group (KIP-932)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.metadata.image import SHARE_GROUPS_DISABLED
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
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
    context: GroupContext, request: Request, message: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse | None:
    """Pass the request to the group coordinator, unless share groups are disabled."""
    groups = share_groups(context)
    if groups is None:
        return DeleteShareGroupOffsetsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=SHARE_GROUPS_DISABLED
        )
    groups.delete_offsets(request_context(request), message, request.answer_with)
    return None


def guard(context: GroupContext, request: Request, message: DeleteShareGroupOffsetsRequest) -> object | None:
    """Authorize each topic separately."""
    return guard_items(
        request,
        message,
        Items("topics", "responses", _refused),
        lambda topic: request.allowed(AclOperation.READ, ResourceType.TOPIC, topic.topic_name),
    )


def _refused(message: DeleteShareGroupOffsetsRequest, code: ErrorCode, text: str) -> DeleteShareGroupOffsetsResponse:
    """The error for every topic."""
    return DeleteShareGroupOffsetsResponse(
        responses=[
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name, error_code=code, error_message=text or None
            )
            for topic in message.topics
        ]
    )


DELETE_SHARE_GROUP_OFFSETS = SchemaApi(
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    handle,
    error_with_message(DeleteShareGroupOffsetsResponse),
    guard=guard,
    needs=RequiredPermission(AclOperation.DELETE, ResourceType.GROUP, "group_id"),
    item_needs=(RequiredPermission(AclOperation.READ, ResourceType.TOPIC),),
).divided(Division(("topics",), "responses", lambda topic: topic.topic_name, mentions=1))
