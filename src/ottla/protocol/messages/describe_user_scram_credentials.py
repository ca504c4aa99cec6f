"""DescribeUserScramCredentials (key 50): users with SCRAM credentials (KIP-554). Flexible from the start."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT8, INT16, INT32, STRING, array, f, message, struct


@struct
class UserName:
    name: str = f(STRING, "0+")


@message("0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = f(array(UserName), "0+", nullable="0+")


@struct
class CredentialInfo:
    mechanism: int = f(INT8, "0+")
    iterations: int = f(INT32, "0+")


@struct
class DescribeUserScramCredentialsResult:
    user: str = f(STRING, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+")
    credential_infos: list[CredentialInfo] = f(array(CredentialInfo), "0+")


@message("0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = f(array(DescribeUserScramCredentialsResult), "0+")


SPEC = ApiSpec(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
)
