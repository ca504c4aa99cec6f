"""DeleteTopics (20): versions 1 to 6, by name or (6) by id. All rules are the controller's (`controller.topics`)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.controller.topics import handle_delete_topics
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.handlers.submit import submit
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: DeleteTopicsRequest) -> None:
    """Hand the request to the controller; the channel parks until the change is committed."""
    submit(context, request, lambda image, controller: handle_delete_topics(image, message, controller))


def error_response(message: DeleteTopicsRequest, code: ErrorCode, text: str) -> DeleteTopicsResponse:
    """The same error for every topic."""
    named = [DeletableTopicResult(name=name, error_code=code, error_message=text) for name in message.topic_names]
    states = [
        DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=text)
        for topic in message.topics
    ]
    return DeleteTopicsResponse(responses=named + states)


DELETE_TOPICS = DeclaredApi(ApiKey.DELETE_TOPICS, handle, error_response, forwarded=True)
