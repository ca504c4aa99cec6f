"""DescribeAcls (key 29): the access control entries that match a filter (KIP-140, KIP-290)."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT8, INT16, INT32, STRING, array, f, message, struct

LITERAL = 3


@message("1-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: int = f(INT8, "0+")
    resource_name_filter: str | None = f(STRING, "0+", nullable="0+")
    pattern_type_filter: int = f(INT8, "1+", default=LITERAL)
    principal_filter: str | None = f(STRING, "0+", nullable="0+")
    host_filter: str | None = f(STRING, "0+", nullable="0+")
    operation: int = f(INT8, "0+")
    permission_type: int = f(INT8, "0+")


@struct
class AclDescription:
    principal: str = f(STRING, "0+")
    host: str = f(STRING, "0+")
    operation: int = f(INT8, "0+")
    permission_type: int = f(INT8, "0+")


@struct
class DescribeAclsResource:
    resource_type: int = f(INT8, "0+")
    resource_name: str = f(STRING, "0+")
    pattern_type: int = f(INT8, "1+", default=LITERAL)
    acls: list[AclDescription] = f(array(AclDescription), "0+")


@message("1-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+")
    resources: list[DescribeAclsResource] = f(array(DescribeAclsResource), "0+")


SPEC = ApiSpec(ApiKey.DESCRIBE_ACLS, DescribeAclsRequest, DescribeAclsResponse)
