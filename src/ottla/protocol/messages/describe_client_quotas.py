"""DescribeClientQuotas (key 48): the quotas of entities that match a filter (KIP-546). 1 is flexible."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, FLOAT64, INT8, INT16, INT32, STRING, array, f, message, struct


@struct
class QuotaFilterComponent:
    entity_type: str = f(STRING, "0+")
    match_type: int = f(INT8, "0+")
    match: str | None = f(STRING, "0+", nullable="0+")


@message("0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: list[QuotaFilterComponent] = f(array(QuotaFilterComponent), "0+")
    strict: bool = f(BOOL, "0+")


@struct
class DescribedEntity:
    entity_type: str = f(STRING, "0+")
    entity_name: str | None = f(STRING, "0+", nullable="0+")


@struct
class DescribedQuota:
    key: str = f(STRING, "0+")
    value: float = f(FLOAT64, "0+")


@struct
class DescribeQuotasEntry:
    entity: list[DescribedEntity] = f(array(DescribedEntity), "0+")
    values: list[DescribedQuota] = f(array(DescribedQuota), "0+")


@message("0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+")
    entries: list[DescribeQuotasEntry] | None = f(array(DescribeQuotasEntry), "0+", nullable="0+")


SPEC = ApiSpec(ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest, DescribeClientQuotasResponse)
