"""CreateTopics (19): versions 2 to 7. All rules are the controller's (`controller.topics`)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.controller.topics import handle_create_topics
from ottla.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import Listeners
from ottla.server.authorization import Need
from ottla.server.decisions import DecidingContext, decided
from ottla.server.guards import Items, amend, guard_items
from ottla.server.request import Request
from ottla.server.stepped import Division


def error_response(message: CreateTopicsRequest, code: ErrorCode, text: str) -> CreateTopicsResponse:
    """The same error for every topic."""
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, error_code=code, error_message=text) for topic in message.topics]
    )


def guard(context: DecidingContext, request: Request, message: CreateTopicsRequest) -> object | None:
    """Who may create in the cluster may create any topic; what came of it is told to who may describe settings."""
    everywhere = request.allowed(AclOperation.CREATE, ResourceType.CLUSTER, told=False)

    def hide_settings(response: CreateTopicsResponse) -> None:
        for topic in response.topics:
            if not topic.error_code and not request.allowed(
                AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, told=False
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


CREATE_TOPICS = decided(
    ApiKey.CREATE_TOPICS,
    handle_create_topics,
    error_response,
    guard=guard,
    listeners=Listeners.BOTH,
    item_needs=(
        Need(AclOperation.CREATE, ResourceType.CLUSTER),
        Need(AclOperation.CREATE, ResourceType.TOPIC),
        Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
    ),
    forwarded=True,
    makes_partitions=True,
    refused_from=6,
    division=Division(("topics",), "topics", lambda topic: topic.name, mentions=2),
)
