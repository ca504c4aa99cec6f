"""ControllerRegistration (70): version 0, on the controller's listener (KIP-919)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.controller.registration import handle_controller_registration
from ottla.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.handlers.submit import submit
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: ControllerRegistrationRequest) -> None:
    """Hand the request to the controller; the channel parks until what it decided is committed."""
    submit(context, request, lambda image, controller: handle_controller_registration(image, message))


def error_response(
    message: ControllerRegistrationRequest, code: ErrorCode, text: str
) -> ControllerRegistrationResponse:
    """The error, of the request as a whole."""
    return ControllerRegistrationResponse(error_code=code, error_message=text or None)


CONTROLLER_REGISTRATION = DeclaredApi(ApiKey.CONTROLLER_REGISTRATION, handle, error_response)
