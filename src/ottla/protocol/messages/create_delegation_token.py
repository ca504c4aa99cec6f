"""CreateDelegationToken (key 38): a token for a user (KIP-48). 2 is flexible.

3 adds the owner, another user than the requester (KIP-373).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BYTES, INT16, INT32, INT64, STRING, array, f, message, struct


@struct
class CreatableRenewers:
    principal_type: str = f(STRING, "0+")
    principal_name: str = f(STRING, "0+")


@message("1-3", flexible="2+")
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = f(STRING, "3+", nullable="3+")
    owner_principal_name: str | None = f(STRING, "3+", nullable="3+")
    renewers: list[CreatableRenewers] = f(array(CreatableRenewers), "0+")
    max_lifetime_ms: int = f(INT64, "0+")


@message("1-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: int = f(INT16, "0+")
    principal_type: str = f(STRING, "0+")
    principal_name: str = f(STRING, "0+")
    token_requester_principal_type: str = f(STRING, "3+", ignorable=True)
    token_requester_principal_name: str = f(STRING, "3+", ignorable=True)
    issue_timestamp_ms: int = f(INT64, "0+")
    expiry_timestamp_ms: int = f(INT64, "0+")
    max_timestamp_ms: int = f(INT64, "0+")
    token_id: str = f(STRING, "0+")
    hmac: bytes = f(BYTES, "0+")
    throttle_time_ms: int = f(INT32, "0+")


SPEC = ApiSpec(ApiKey.CREATE_DELEGATION_TOKEN, CreateDelegationTokenRequest, CreateDelegationTokenResponse)
