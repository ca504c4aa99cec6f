"""AlterClientQuotas (key 49): quotas of users, client ids and IP addresses (KIP-546). 1 is flexible."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, FLOAT64, INT16, INT32, STRING, array, f, message, struct


@struct
class AlteredEntity:
    entity_type: str = f(STRING, "0+")
    entity_name: str | None = f(STRING, "0+", nullable="0+")


@struct
class AlterQuotaOperation:
    key: str = f(STRING, "0+")
    value: float = f(FLOAT64, "0+")
    remove: bool = f(BOOL, "0+")


@struct
class AlterQuotasEntry:
    entity: list[AlteredEntity] = f(array(AlteredEntity), "0+")
    ops: list[AlterQuotaOperation] = f(array(AlterQuotaOperation), "0+")


@message("0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[AlterQuotasEntry] = f(array(AlterQuotasEntry), "0+")
    validate_only: bool = f(BOOL, "0+")


@struct
class AlterQuotasResult:
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+")
    entity: list[AlteredEntity] = f(array(AlteredEntity), "0+")


@message("0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = f(INT32, "0+")
    entries: list[AlterQuotasResult] = f(array(AlterQuotasResult), "0+")


SPEC = ApiSpec(ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest, AlterClientQuotasResponse)
