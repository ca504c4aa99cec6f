"""BrokerHeartbeat (63): versions 0 to 2, on the controller's listener (KIP-631)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.controller.registration import handle_broker_heartbeat
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.handlers.submit import submit
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: BrokerHeartbeatRequest) -> None:
    """Hand the request to the controller; the channel parks until what it decided is committed."""
    submit(context, request, lambda image, controller: handle_broker_heartbeat(image, message, controller))


def error_response(message: BrokerHeartbeatRequest, code: ErrorCode, text: str) -> BrokerHeartbeatResponse:
    """The bare error."""
    return BrokerHeartbeatResponse(error_code=code)


BROKER_HEARTBEAT = DeclaredApi(ApiKey.BROKER_HEARTBEAT, handle, error_response)
