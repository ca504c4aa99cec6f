"""UnregisterBroker (64): version 0. Removes a broker that will not return."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.registration import handle_unregister_broker
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.protocol.registry import ApiKey
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import controller_api


def error_response(message: UnregisterBrokerRequest, code: ErrorCode, text: str) -> UnregisterBrokerResponse:
    """The error for the whole request."""
    return UnregisterBrokerResponse(error_code=code, error_message=text)


UNREGISTER_BROKER = controller_api(
    ApiKey.UNREGISTER_BROKER,
    handle_unregister_broker,
    error_response,
    needs=RequiredPermission(AclOperation.ALTER, ResourceType.CLUSTER),
    forwarded=True,
)
