"""SaslHandshake (17): who gets here is authenticated, or need not be, so that it comes out of place (KIP-43).

Where clients have to authenticate `server.requests.authentication` answers it before.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import Listeners, SchemaApi, bare_error
from ottla.server.requests.request import Request


def handle(context: AdminContext, request: Request, message: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Refuse it; the connection stays."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


SASL_HANDSHAKE = SchemaApi(ApiKey.SASL_HANDSHAKE, handle, bare_error(SaslHandshakeResponse), listeners=Listeners.BOTH)
