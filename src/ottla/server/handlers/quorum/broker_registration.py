"""BrokerRegistration (62): versions 0 to 4, on the controller's listener (KIP-631)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.controller.registration import handle_broker_registration
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.handlers.submit import submit
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: BrokerRegistrationRequest) -> None:
    """Hand the request to the controller; the channel parks until what it decided is committed."""
    submit(context, request, lambda image, controller: handle_broker_registration(image, message, controller))


def error_response(message: BrokerRegistrationRequest, code: ErrorCode, text: str) -> BrokerRegistrationResponse:
    """The bare error."""
    return BrokerRegistrationResponse(error_code=code)


BROKER_REGISTRATION = DeclaredApi(ApiKey.BROKER_REGISTRATION, handle, error_response)
