"""CreatePartitions (37): versions 0 to 3. All rules are the controller's (`controller.topics`)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.controller.topics import handle_create_partitions
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.handlers.submit import submit
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: CreatePartitionsRequest) -> None:
    """Hand the request to the controller; the channel parks until the change is committed and the logs are open."""
    submit(
        context,
        request,
        lambda image, controller: handle_create_partitions(image, message, controller),
        makes_partitions=True,
    )


def error_response(message: CreatePartitionsRequest, code: ErrorCode, text: str) -> CreatePartitionsResponse:
    """The same error for every topic."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=text)
            for topic in message.topics
        ]
    )


CREATE_PARTITIONS = DeclaredApi(ApiKey.CREATE_PARTITIONS, handle, error_response, forwarded=True)
