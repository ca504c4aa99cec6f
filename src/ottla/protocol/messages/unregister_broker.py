"""UnregisterBroker (key 64): remove a broker permanently. Flexible from the start."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, f, message


@message("0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: int = f(INT32, "0+")


@message("0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)


SPEC = ApiSpec(ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest, UnregisterBrokerResponse)
