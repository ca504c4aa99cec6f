"""AllocateProducerIds (67): version 0, on the controller's listener (KIP-730)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.controller.producer_ids import handle_allocate_producer_ids
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.handlers.submit import submit
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: AllocateProducerIdsRequest) -> None:
    """Hand the request to the controller; the channel parks until what it decided is committed."""
    submit(context, request, lambda image, controller: handle_allocate_producer_ids(image, message))


def error_response(message: AllocateProducerIdsRequest, code: ErrorCode, text: str) -> AllocateProducerIdsResponse:
    """The bare error."""
    return AllocateProducerIdsResponse(error_code=code)


ALLOCATE_PRODUCER_IDS = DeclaredApi(ApiKey.ALLOCATE_PRODUCER_IDS, handle, error_response)
