"""UnregisterBroker (64): version 0. Forgets a broker that will not come back."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.controller.registration import handle_unregister_broker
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.handlers.submit import submit
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: UnregisterBrokerRequest) -> None:
    """Hand the request to the controller; the channel parks until what it decided is committed."""
    submit(context, request, lambda image, controller: handle_unregister_broker(image, message, controller))


def error_response(message: UnregisterBrokerRequest, code: ErrorCode, text: str) -> UnregisterBrokerResponse:
    """The error as a whole."""
    return UnregisterBrokerResponse(error_code=code, error_message=text)


UNREGISTER_BROKER = DeclaredApi(ApiKey.UNREGISTER_BROKER, handle, error_response, forwarded=True)
