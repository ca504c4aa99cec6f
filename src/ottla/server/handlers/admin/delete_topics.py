"""DeleteTopics (20): versions 1 to 6, by name or (6) by id. All rules are the controller's (`controller.topics`)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.controller.topics import handle_delete_topics
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import Listeners
from ottla.server.authorization import Need
from ottla.server.decisions import decided


def error_response(message: DeleteTopicsRequest, code: ErrorCode, text: str) -> DeleteTopicsResponse:
    """The same error for every topic."""
    named = [DeletableTopicResult(name=name, error_code=code, error_message=text) for name in message.topic_names]
    states = [
        DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=text)
        for topic in message.topics
    ]
    return DeleteTopicsResponse(responses=named + states)


DELETE_TOPICS = decided(
    ApiKey.DELETE_TOPICS,
    handle_delete_topics,
    error_response,
    listeners=Listeners.BOTH,
    item_needs=(
        Need(AclOperation.DELETE, ResourceType.CLUSTER),
        Need(AclOperation.DELETE, ResourceType.TOPIC),
        Need(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
    forwarded=True,
    refused_from=5,
)
