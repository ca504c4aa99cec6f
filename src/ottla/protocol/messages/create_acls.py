"""CreateAcls (key 30): new access control entries (KIP-140, KIP-290)."""

from __future__ import annotations

from ottla.protocol.messages.describe_acls import LITERAL
from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT8, INT16, INT32, STRING, array, f, message, struct


@struct
class AclCreation:
    resource_type: int = f(INT8, "0+")
    resource_name: str = f(STRING, "0+")
    resource_pattern_type: int = f(INT8, "1+", default=LITERAL)
    principal: str = f(STRING, "0+")
    host: str = f(STRING, "0+")
    operation: int = f(INT8, "0+")
    permission_type: int = f(INT8, "0+")


@message("1-3", flexible="2+")
class CreateAclsRequest:
    creations: list[AclCreation] = f(array(AclCreation), "0+")


@struct
class AclCreationResult:
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+")


@message("1-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    results: list[AclCreationResult] = f(array(AclCreationResult), "0+")


SPEC = ApiSpec(ApiKey.CREATE_ACLS, CreateAclsRequest, CreateAclsResponse)
