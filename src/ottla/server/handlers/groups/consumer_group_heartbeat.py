"""ConsumerGroupHeartbeat (68): versions 0 and 1. Membership of the consumer protocol (KIP-848)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.consumer_protocol import CONSUMER_PROTOCOL_DISABLED, consumer_protocol_enabled
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.group_requests import request_context
from ottla.server.requests.api import SchemaApi, error_with_message
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(
    context: GroupContext, request: Request, message: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | None:
    """Pass the request to the group coordinator, unless the protocol is disabled."""
    if not consumer_protocol_enabled(context):
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=CONSUMER_PROTOCOL_DISABLED
        )
    context.group_coordinator.consumer_group_heartbeat(request_context(request), message, request.answer_with)
    return None


def guard(context: GroupContext, request: Request, message: ConsumerGroupHeartbeatRequest) -> None:
    """Subscribing to topics by name needs DESCRIBE on all of them; a pattern skips topics without it."""
    names = dict.fromkeys(message.subscribed_topic_names or ())
    if not all(request.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


CONSUMER_GROUP_HEARTBEAT = SchemaApi(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    handle,
    error_with_message(ConsumerGroupHeartbeatResponse),
    guard=guard,
    needs=RequiredPermission(AclOperation.READ, ResourceType.GROUP, "group_id"),
    item_needs=(RequiredPermission(AclOperation.DESCRIBE, ResourceType.TOPIC),),
)
