"""CreatePartitions (37): versions 0 to 3. The rules are in `controller.topics`."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.topics import handle_create_partitions
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import DecidingContext, controller_api
from ottla.server.requests.guards import Items, guard_items
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division


def error_response(message: CreatePartitionsRequest, code: ErrorCode, text: str) -> CreatePartitionsResponse:
    """The error for every topic."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=text)
            for topic in message.topics
        ]
    )


def guard(context: DecidingContext, request: Request, message: CreatePartitionsRequest) -> object | None:
    """Authorize each topic separately."""
    return guard_items(
        request,
        message,
        Items("topics", "results", error_response),
        lambda topic: request.allowed(AclOperation.ALTER, ResourceType.TOPIC, topic.name),
    )


CREATE_PARTITIONS = controller_api(
    ApiKey.CREATE_PARTITIONS,
    handle_create_partitions,
    error_response,
    guard=guard,
    item_needs=(RequiredPermission(AclOperation.ALTER, ResourceType.TOPIC),),
    forwarded=True,
    makes_partitions=True,
    refused_from=3,
    divisions=(Division(("topics",), "results", lambda topic: topic.name, mentions=2),),
)
