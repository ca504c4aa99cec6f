"""SaslAuthenticate (36) after authentication: refused, as `sasl_handshake` is (KIP-152)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi, error_with_message
from ottla.server.requests.request import Request


def handle(context: AdminContext, request: Request, message: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Refuse the request; the connection stays open."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )


SASL_AUTHENTICATE = SchemaApi(ApiKey.SASL_AUTHENTICATE, handle, error_with_message(SaslAuthenticateResponse))
