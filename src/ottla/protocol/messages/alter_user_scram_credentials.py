"""AlterUserScramCredentials (key 51): user passwords, salted by the client (KIP-554). Flexible from the start."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BYTES, INT8, INT16, INT32, STRING, array, f, message, struct


@struct
class ScramCredentialDeletion:
    name: str = f(STRING, "0+")
    mechanism: int = f(INT8, "0+")


@struct
class ScramCredentialUpsertion:
    name: str = f(STRING, "0+")
    mechanism: int = f(INT8, "0+")
    iterations: int = f(INT32, "0+")
    salt: bytes = f(BYTES, "0+")
    salted_password: bytes = f(BYTES, "0+")


@message("0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = f(array(ScramCredentialDeletion), "0+")
    upsertions: list[ScramCredentialUpsertion] = f(array(ScramCredentialUpsertion), "0+")


@struct
class AlterUserScramCredentialsResult:
    user: str = f(STRING, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+")


@message("0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    results: list[AlterUserScramCredentialsResult] = f(array(AlterUserScramCredentialsResult), "0+")


SPEC = ApiSpec(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse)
