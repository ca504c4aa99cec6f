"""CreateDelegationToken (38): versions 1 to 3, forwarded to the active controller (KIP-48, KIP-373)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.delegation_tokens import handle_create_delegation_token, owner_of, refused
from ottla.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.handlers.admin.token_requests import check_token_request
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(
    context: AdminContext, request: Request, message: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse | None:
    """Create a token for the requester; another owner requires CREATE_TOKENS on that user. Raises KafkaError."""
    check_token_request(request)
    requester, owner = request.principal, owner_of(message, request.principal)
    if owner != requester and not request.allowed(AclOperation.CREATE_TOKENS, ResourceType.USER, owner):
        return refused(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, owner, requester)
    context.decisions.submit(
        request,
        lambda image, controller: handle_create_delegation_token(image, message, requester, controller),
    )
    return None


def error_response(message: CreateDelegationTokenRequest, code: ErrorCode, text: str) -> CreateDelegationTokenResponse:
    """The error, without a message."""
    return CreateDelegationTokenResponse(
        error_code=code, issue_timestamp_ms=-1, expiry_timestamp_ms=-1, max_timestamp_ms=-1
    )


CREATE_DELEGATION_TOKEN = SchemaApi(
    ApiKey.CREATE_DELEGATION_TOKEN,
    handle,
    error_response,
    item_needs=(RequiredPermission(AclOperation.CREATE_TOKENS, ResourceType.USER),),
    forwarded=True,
)
