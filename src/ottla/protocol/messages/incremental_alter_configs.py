"""IncrementalAlterConfigs (key 44): set, delete, append to and subtract from configs (KIP-339). 1 is flexible."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT8, INT16, INT32, STRING, array, f, message, struct


@struct
class AlterableConfig:
    name: str = f(STRING, "0+")
    config_operation: int = f(INT8, "0+")
    value: str | None = f(STRING, "0+", nullable="0+", default=None)


@struct
class AlterConfigsResource:
    resource_type: int = f(INT8, "0+")
    resource_name: str = f(STRING, "0+")
    configs: list[AlterableConfig] = f(array(AlterableConfig), "0+")


@message("0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource] = f(array(AlterConfigsResource), "0+")
    validate_only: bool = f(BOOL, "0+")


@struct
class AlterConfigsResourceResponse:
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    resource_type: int = f(INT8, "0+")
    resource_name: str = f(STRING, "0+")


@message("0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    responses: list[AlterConfigsResourceResponse] = f(array(AlterConfigsResourceResponse), "0+")


SPEC = ApiSpec(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse)
