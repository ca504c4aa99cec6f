"""SaslHandshake (17) of a client that is authenticated or need not be: refused (KIP-43).

On listeners that require authentication `server.requests.authentication` handles it earlier.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.request import Request


def handle(context: AdminContext, request: Request, message: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Refuse the request; the connection stays open."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


SASL_HANDSHAKE = SchemaApi(ApiKey.SASL_HANDSHAKE, handle, bare_error(SaslHandshakeResponse))
