"""AlterConfigs (key 33): replace all configs of a resource; superseded by IncrementalAlterConfigs. 2 is flexible."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT8, INT16, INT32, STRING, array, f, message, struct


@struct
class AlterableConfig:
    name: str = f(STRING, "0+")
    value: str | None = f(STRING, "0+", nullable="0+", default=None)


@struct
class AlterConfigsResource:
    resource_type: int = f(INT8, "0+")
    resource_name: str = f(STRING, "0+")
    configs: list[AlterableConfig] = f(array(AlterableConfig), "0+")


@message("0-2", flexible="2+")
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = f(array(AlterConfigsResource), "0+")
    validate_only: bool = f(BOOL, "0+")


@struct
class AlterConfigsResourceResponse:
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    resource_type: int = f(INT8, "0+")
    resource_name: str = f(STRING, "0+")


@message("0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    responses: list[AlterConfigsResourceResponse] = f(array(AlterConfigsResourceResponse), "0+")


SPEC = ApiSpec(ApiKey.ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse)
