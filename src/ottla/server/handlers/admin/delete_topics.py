"""DeleteTopics (20): versions 1 to 6, by name or (6) by id. The rules are in `controller.topics`."""

from __future__ import annotations

from typing import Any

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.topics import handle_delete_topics
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.registry import ApiKey
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import DecidingContext, controller_api
from ottla.server.requests.guards import Items, guard_items, topic_name
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division


def error_response(message: DeleteTopicsRequest, code: ErrorCode, text: str) -> DeleteTopicsResponse:
    """The error for every topic."""
    named = [DeletableTopicResult(name=name, error_code=code, error_message=text) for name in message.topic_names]
    states = [
        DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=text)
        for topic in message.topics
    ]
    return DeleteTopicsResponse(responses=named + states)


def guard(context: DecidingContext, request: Request, message: DeleteTopicsRequest) -> object | None:
    """DELETE on the cluster permits any topic. A refused topic id without DESCRIBE permission is answered without
    its name.
    """
    if request.allowed(AclOperation.DELETE, ResourceType.CLUSTER, audit=False):
        return None
    image = context.decisions.image

    def may_delete(topic: str | DeleteTopicState) -> bool:
        name = _name(image, topic)
        return name is None or request.allowed(AclOperation.DELETE, ResourceType.TOPIC, name)

    def refusal(refused: Any, code: ErrorCode, text: str) -> DeleteTopicsResponse:
        response = error_response(refused, code, text)
        for row, topic in zip(response.responses, (*refused.topic_names, *refused.topics), strict=True):
            row.name = _name(image, topic)
            by_id = isinstance(topic, DeleteTopicState) and topic.name is None
            if by_id and not request.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, row.name or "", audit=False):
                row.name = None
        return response

    # A request has either only names, or topics by name or by id.
    asked = "topics" if message.topics else "topic_names"
    return guard_items(request, message, Items(asked, "responses", refusal), may_delete)


def _name(image: MetadataImage, topic: str | DeleteTopicState) -> str | None:
    """None for an id without a topic."""
    if isinstance(topic, str):
        return topic
    return topic_name(image, bytes(topic.topic_id) if topic.name is None else topic.name)


def _named(topic: str | DeleteTopicState) -> tuple[str | None, bytes]:
    return (topic, b"") if isinstance(topic, str) else (topic.name, bytes(topic.topic_id))


DELETE_TOPICS = controller_api(
    ApiKey.DELETE_TOPICS,
    handle_delete_topics,
    error_response,
    guard=guard,
    item_needs=(
        RequiredPermission(AclOperation.DELETE, ResourceType.CLUSTER),
        RequiredPermission(AclOperation.DELETE, ResourceType.TOPIC),
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
    forwarded=True,
    refused_from=5,
    divisions=(Division(("topics", "topic_names"), "responses", _named, mentions=2),),
)
