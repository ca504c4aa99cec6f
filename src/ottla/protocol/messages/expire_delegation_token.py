"""ExpireDelegationToken (key 40): change the expiry of a token, or expire it now (KIP-48). 2 is flexible."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BYTES, INT16, INT32, INT64, f, message


@message("1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: bytes = f(BYTES, "0+")
    expiry_time_period_ms: int = f(INT64, "0+")


@message("1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: int = f(INT16, "0+")
    expiry_timestamp_ms: int = f(INT64, "0+")
    throttle_time_ms: int = f(INT32, "0+")


SPEC = ApiSpec(ApiKey.EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenRequest, ExpireDelegationTokenResponse)
