"""UnregisterBroker (64): version 0. Forgets a broker that will not come back."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.controller.registration import handle_unregister_broker
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import Listeners
from ottla.server.authorization import Need
from ottla.server.decisions import decided


def error_response(message: UnregisterBrokerRequest, code: ErrorCode, text: str) -> UnregisterBrokerResponse:
    """The error as a whole."""
    return UnregisterBrokerResponse(error_code=code, error_message=text)


UNREGISTER_BROKER = decided(
    ApiKey.UNREGISTER_BROKER,
    handle_unregister_broker,
    error_response,
    listeners=Listeners.BOTH,
    needs=Need(AclOperation.ALTER, ResourceType.CLUSTER),
    forwarded=True,
)
