"""SaslAuthenticate (key 36): one step of a mechanism (KIP-152); from version 1 on with the session's end (KIP-368)."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BYTES, INT16, INT64, STRING, f, message


@message("0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: bytes = f(BYTES, "0+")


@message("0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+")
    auth_bytes: bytes = f(BYTES, "0+")
    session_lifetime_ms: int = f(INT64, "1+", ignorable=True)


SPEC = ApiSpec(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse)
