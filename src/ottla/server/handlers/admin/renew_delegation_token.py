"""RenewDelegationToken (39): versions 1 and 2, forwarded to the active controller (KIP-48)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.controller.delegation_tokens import handle_renew_delegation_token
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.handlers.admin.token_requests import check_token_request
from ottla.server.requests.api import Listeners, SchemaApi
from ottla.server.requests.request import Request


def handle(context: AdminContext, request: Request, message: RenewDelegationTokenRequest) -> None:
    """Renew a token for the requester. Raises KafkaError if the client may not use token requests."""
    check_token_request(request)
    context.decisions.submit(
        request,
        lambda image, controller: handle_renew_delegation_token(image, message, request.principal, controller),
    )


def error_response(message: RenewDelegationTokenRequest, code: ErrorCode, text: str) -> RenewDelegationTokenResponse:
    """The error, without a message."""
    return RenewDelegationTokenResponse(error_code=code)


RENEW_DELEGATION_TOKEN = SchemaApi(
    ApiKey.RENEW_DELEGATION_TOKEN, handle, error_response, listeners=Listeners.BOTH, forwarded=True
)
