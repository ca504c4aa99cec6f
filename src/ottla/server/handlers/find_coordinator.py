"""FindCoordinator (10): versions 0 to 6; from 4 on several keys in one request (KIP-699).

This broker has no coordinators yet, and says so: COORDINATOR_NOT_AVAILABLE, what Apache Kafka answers while the
internal topic of the coordinator doesn't exist. Clients retry it and report it; nobody is sent to a broker that would
not serve.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.request import Request

GROUP = 0
TRANSACTION = 1
SHARE = 2

_MESSAGES = {
    GROUP: "Consumer groups are not served by this broker yet.",
    TRANSACTION: "Transactions are not served by this broker yet.",
    SHARE: "Share groups are not served by this broker yet.",
}

_FIRST_BATCHED_VERSION = 4
_FIRST_VERSION_WITH_SHARE = 6


def handle(context: BrokerContext, request: Request, message: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Say that there is none."""
    known = message.key_type in _MESSAGES and (
        message.key_type != SHARE or request.api_version >= _FIRST_VERSION_WITH_SHARE
    )
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE if known else ErrorCode.INVALID_REQUEST
    text = _MESSAGES[message.key_type] if known else f"Coordinator type {message.key_type} is not known."
    request.count_error(code)
    return _response(message, code, text, request.api_version >= _FIRST_BATCHED_VERSION)


def error_response(message: FindCoordinatorRequest, code: ErrorCode, text: str) -> FindCoordinatorResponse:
    """The error for every key."""
    return _response(message, code, text, bool(message.coordinator_keys))


def _response(message: FindCoordinatorRequest, code: ErrorCode, text: str, batched: bool) -> FindCoordinatorResponse:
    if not batched:
        return FindCoordinatorResponse(error_code=code, error_message=text, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text)
            for key in message.coordinator_keys
        ]
    )


FIND_COORDINATOR = DeclaredApi(ApiKey.FIND_COORDINATOR, handle, error_response)
