"""DeleteAcls (key 31): remove the access control entries that match a filter (KIP-140, KIP-290)."""

from __future__ import annotations

from ottla.protocol.messages.describe_acls import LITERAL
from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT8, INT16, INT32, STRING, array, f, message, struct


@struct
class DeleteAclsFilter:
    resource_type_filter: int = f(INT8, "0+")
    resource_name_filter: str | None = f(STRING, "0+", nullable="0+")
    pattern_type_filter: int = f(INT8, "1+", default=LITERAL)
    principal_filter: str | None = f(STRING, "0+", nullable="0+")
    host_filter: str | None = f(STRING, "0+", nullable="0+")
    operation: int = f(INT8, "0+")
    permission_type: int = f(INT8, "0+")


@message("1-3", flexible="2+")
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = f(array(DeleteAclsFilter), "0+")


@struct
class DeleteAclsMatchingAcl:
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+")
    resource_type: int = f(INT8, "0+")
    resource_name: str = f(STRING, "0+")
    pattern_type: int = f(INT8, "1+", default=LITERAL)
    principal: str = f(STRING, "0+")
    host: str = f(STRING, "0+")
    operation: int = f(INT8, "0+")
    permission_type: int = f(INT8, "0+")


@struct
class DeleteAclsFilterResult:
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = f(array(DeleteAclsMatchingAcl), "0+")


@message("1-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    filter_results: list[DeleteAclsFilterResult] = f(array(DeleteAclsFilterResult), "0+")


SPEC = ApiSpec(ApiKey.DELETE_ACLS, DeleteAclsRequest, DeleteAclsResponse)
