"""CreateTopics (19): versions 2 to 7. All rules are the controller's (`controller.topics`)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.controller.topics import handle_create_topics
from ottla.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.handlers.submit import submit
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: CreateTopicsRequest) -> None:
    """Hand the request to the controller; the channel parks until the change is committed and the logs are open."""
    submit(
        context,
        request,
        lambda image, controller: handle_create_topics(image, message, controller),
        makes_partitions=True,
    )


def error_response(message: CreateTopicsRequest, code: ErrorCode, text: str) -> CreateTopicsResponse:
    """The same error for every topic."""
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, error_code=code, error_message=text) for topic in message.topics]
    )


CREATE_TOPICS = DeclaredApi(ApiKey.CREATE_TOPICS, handle, error_response, forwarded=True)
