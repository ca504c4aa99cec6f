"""ExpireDelegationToken (40): versions 1 and 2, forwarded to the active controller (KIP-48)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.controller.delegation_tokens import handle_expire_delegation_token
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.handlers.admin.token_requests import check_token_request
from ottla.server.requests.api import Listeners, SchemaApi
from ottla.server.requests.request import Request


def handle(context: AdminContext, request: Request, message: ExpireDelegationTokenRequest) -> None:
    """Expire a token for the requester. Raises KafkaError if the client may not use token requests."""
    check_token_request(request)
    context.decisions.submit(
        request,
        lambda image, controller: handle_expire_delegation_token(image, message, request.principal, controller),
    )


def error_response(message: ExpireDelegationTokenRequest, code: ErrorCode, text: str) -> ExpireDelegationTokenResponse:
    """The error, without a message."""
    return ExpireDelegationTokenResponse(error_code=code)


EXPIRE_DELEGATION_TOKEN = SchemaApi(
    ApiKey.EXPIRE_DELEGATION_TOKEN, handle, error_response, listeners=Listeners.BOTH, forwarded=True
)
