"""DescribeConfigs (key 32): configs of topics, brokers and other resources (KIP-133, KIP-226).

3 adds types and documentation (KIP-569), 4 is flexible. A null list of keys requests all.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT8, INT16, INT32, STRING, array, f, message, struct


@struct
class DescribeConfigsResource:
    resource_type: int = f(INT8, "0+")
    resource_name: str = f(STRING, "0+")
    configuration_keys: list[str] | None = f(array(STRING), "0+", nullable="0+", default=None)


@message("1-4", flexible="4+")
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = f(array(DescribeConfigsResource), "0+")
    include_synonyms: bool = f(BOOL, "0+")
    include_documentation: bool = f(BOOL, "3+")


@struct
class DescribeConfigsSynonym:
    name: str = f(STRING, "0+")
    value: str | None = f(STRING, "0+", nullable="0+", default=None)
    source: int = f(INT8, "0+")


@struct
class DescribeConfigsResourceResult:
    name: str = f(STRING, "0+")
    value: str | None = f(STRING, "0+", nullable="0+", default=None)
    read_only: bool = f(BOOL, "0+")
    config_source: int = f(INT8, "0+", default=-1)
    is_sensitive: bool = f(BOOL, "0+")
    synonyms: list[DescribeConfigsSynonym] = f(array(DescribeConfigsSynonym), "0+")
    config_type: int = f(INT8, "3+", ignorable=True)
    documentation: str | None = f(STRING, "3+", nullable="0+", default=None, ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    resource_type: int = f(INT8, "0+")
    resource_name: str = f(STRING, "0+")
    configs: list[DescribeConfigsResourceResult] = f(array(DescribeConfigsResourceResult), "0+")


@message("1-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    results: list[DescribeConfigsResult] = f(array(DescribeConfigsResult), "0+")


SPEC = ApiSpec(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse)
