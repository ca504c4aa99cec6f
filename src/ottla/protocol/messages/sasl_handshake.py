"""SaslHandshake (key 17): the client's mechanism (KIP-43). From version 1 on, tokens follow in SaslAuthenticate
requests."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, STRING, array, f, message


@message("0-1")
class SaslHandshakeRequest:
    mechanism: str = f(STRING, "0+")


@message("0-1")
class SaslHandshakeResponse:
    error_code: int = f(INT16, "0+")
    mechanisms: list[str] = f(array(STRING), "0+")


SPEC = ApiSpec(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse)
