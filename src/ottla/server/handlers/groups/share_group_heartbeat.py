"""ShareGroupHeartbeat (76): version 1. Membership of share groups (KIP-932)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.metadata.image import SHARE_GROUPS_DISABLED
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import request_context
from ottla.server.handlers.groups.share_protocol import share_groups
from ottla.server.requests.api import SchemaApi, error_with_message
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(
    context: GroupContext, request: Request, message: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | None:
    """Pass the request to the group coordinator, unless share groups are disabled."""
    groups = share_groups(context)
    if groups is None:
        return ShareGroupHeartbeatResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=SHARE_GROUPS_DISABLED
        )
    groups.heartbeat(request_context(request), message, request.answer_with)
    return None


def guard(context: GroupContext, request: Request, message: ShareGroupHeartbeatRequest) -> None:
    """Subscribing to topics needs DESCRIBE on all of them."""
    names = dict.fromkeys(message.subscribed_topic_names or ())
    if not all(request.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


SHARE_GROUP_HEARTBEAT = SchemaApi(
    ApiKey.SHARE_GROUP_HEARTBEAT,
    handle,
    error_with_message(ShareGroupHeartbeatResponse),
    guard=guard,
    needs=RequiredPermission(AclOperation.READ, ResourceType.GROUP, "group_id"),
    item_needs=(RequiredPermission(AclOperation.DESCRIBE, ResourceType.TOPIC),),
)
