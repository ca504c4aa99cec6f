"""Envelope (key 58): a client's request that a broker forwards to the controller (KIP-590). Flexible from the start.

`request_data` is the request with its header, `response_data` the response with its header, both without size.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BYTES, INT16, f, message


@message("0", flexible="0+")
class EnvelopeRequest:
    request_data: bytes = f(BYTES, "0+")
    request_principal: bytes | None = f(BYTES, "0+", nullable="0+")
    client_host_address: bytes = f(BYTES, "0+")


@message("0", flexible="0+")
class EnvelopeResponse:
    response_data: bytes | None = f(BYTES, "0+", nullable="0+", default=None)
    error_code: int = f(INT16, "0+")


SPEC = ApiSpec(ApiKey.ENVELOPE, EnvelopeRequest, EnvelopeResponse)
