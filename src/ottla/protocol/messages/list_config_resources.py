"""ListConfigResources (key 74): names of resources that can have configs (KIP-1142).

0 was ListClientMetricsResources; 1 selects resource types, an empty list all.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT8, INT16, INT32, STRING, array, f, message, struct


@message("0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[int] = f(array(INT8), "1+")


@struct
class ConfigResource:
    resource_name: str = f(STRING, "0+")
    resource_type: int = f(INT8, "1+", default=16, ignorable=True)


@message("0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    config_resources: list[ConfigResource] = f(array(ConfigResource), "0+")


SPEC = ApiSpec(ApiKey.LIST_CONFIG_RESOURCES, ListConfigResourcesRequest, ListConfigResourcesResponse)
