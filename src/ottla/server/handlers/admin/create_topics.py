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
from ottla.server.decisions import decided


def error_response(message: CreateTopicsRequest, code: ErrorCode, text: str) -> CreateTopicsResponse:
    """The same error for every topic."""
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, error_code=code, error_message=text) for topic in message.topics]
    )


CREATE_TOPICS = decided(
    ApiKey.CREATE_TOPICS,
    handle_create_topics,
    error_response,
    listeners=Listeners.BOTH,
    item_needs=(
        Need(AclOperation.CREATE, ResourceType.CLUSTER),
        Need(AclOperation.CREATE, ResourceType.TOPIC),
        Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
    ),
    forwarded=True,
    makes_partitions=True,
    refused_from=6,
)
