"""DescribeDelegationToken (key 41): tokens with their HMACs (KIP-48). 2 is flexible, 3 adds the requester (KIP-373)."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BYTES, INT16, INT32, INT64, STRING, array, f, message, struct


@struct
class DescribeDelegationTokenOwner:
    principal_type: str = f(STRING, "0+")
    principal_name: str = f(STRING, "0+")


@message("1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenOwner] | None = f(array(DescribeDelegationTokenOwner), "0+", nullable="0+")


@struct
class DescribedDelegationTokenRenewer:
    principal_type: str = f(STRING, "0+")
    principal_name: str = f(STRING, "0+")


@struct
class DescribedDelegationToken:
    principal_type: str = f(STRING, "0+")
    principal_name: str = f(STRING, "0+")
    token_requester_principal_type: str = f(STRING, "3+", ignorable=True)
    token_requester_principal_name: str = f(STRING, "3+", ignorable=True)
    issue_timestamp: int = f(INT64, "0+")
    expiry_timestamp: int = f(INT64, "0+")
    max_timestamp: int = f(INT64, "0+")
    token_id: str = f(STRING, "0+")
    hmac: bytes = f(BYTES, "0+")
    renewers: list[DescribedDelegationTokenRenewer] = f(array(DescribedDelegationTokenRenewer), "0+")


@message("1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: int = f(INT16, "0+")
    tokens: list[DescribedDelegationToken] = f(array(DescribedDelegationToken), "0+")
    throttle_time_ms: int = f(INT32, "0+")


SPEC = ApiSpec(ApiKey.DESCRIBE_DELEGATION_TOKEN, DescribeDelegationTokenRequest, DescribeDelegationTokenResponse)
