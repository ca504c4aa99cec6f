"""CreateTopics (19): versions 2 to 7. The rules are in `controller.topics`."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.topics import handle_create_topics
from ottla.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import DecidingContext, controller_api
from ottla.server.requests.guards import Items, amend, guard_items
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division


def error_response(message: CreateTopicsRequest, code: ErrorCode, text: str) -> CreateTopicsResponse:
    """The error for every topic."""
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, error_code=code, error_message=text) for topic in message.topics]
    )


def guard(context: DecidingContext, request: Request, message: CreateTopicsRequest) -> object | None:
    """CREATE on the cluster permits any topic; configs are returned only with DESCRIBE_CONFIGS."""
    everywhere = request.allowed(AclOperation.CREATE, ResourceType.CLUSTER, audit=False)

    def hide_settings(response: CreateTopicsResponse) -> None:
        for topic in response.topics:
            if not topic.error_code and not request.allowed(
                AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, audit=False
            ):
                topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []

    amend(request, hide_settings)
    return guard_items(
        request,
        message,
        Items("topics", "topics", error_response),
        lambda topic: everywhere or request.allowed(AclOperation.CREATE, ResourceType.TOPIC, topic.name),
    )


CREATE_TOPICS = controller_api(
    ApiKey.CREATE_TOPICS,
    handle_create_topics,
    error_response,
    guard=guard,
    item_needs=(
        RequiredPermission(AclOperation.CREATE, ResourceType.CLUSTER),
        RequiredPermission(AclOperation.CREATE, ResourceType.TOPIC),
        RequiredPermission(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
    ),
    forwarded=True,
    makes_partitions=True,
    refused_from=6,
    divisions=(Division(("topics",), "topics", lambda topic: topic.name, mentions=2),),
)
