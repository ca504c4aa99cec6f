"""ApiVersions (key 18): the APIs and versions that the broker serves, and its features.

Versions 0 to 2 only differ in the throttle time. 3 is flexible and names the client's software and the features
(KIP-584); its response leaves out features with the minimum 0, which 4 lists (KAFKA-17011). 5 names the cluster and
node that the client intends to reach (KIP-1242). The response header has no tag section in any version, because the
client doesn't know the broker's versions yet (KIP-511).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, INT64, STRING, array, f, message, struct


@message("0-5", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = f(STRING, "3+", ignorable=True)
    client_software_version: str = f(STRING, "3+", ignorable=True)
    cluster_id: str | None = f(STRING, "5+", nullable="5+", default=None, ignorable=True)
    node_id: int = f(INT32, "5+", default=-1, ignorable=True)


@struct
class ApiVersion:
    api_key: int = f(INT16, "0+")
    min_version: int = f(INT16, "0+")
    max_version: int = f(INT16, "0+")


@struct
class SupportedFeatureKey:
    name: str = f(STRING, "0+")
    min_version: int = f(INT16, "0+")
    max_version: int = f(INT16, "0+")


@struct
class FinalizedFeatureKey:
    name: str = f(STRING, "0+")
    max_version_level: int = f(INT16, "0+")
    min_version_level: int = f(INT16, "0+")


@message("0-5", flexible="3+")
class ApiVersionsResponse:
    error_code: int = f(INT16, "0+")
    api_keys: list[ApiVersion] = f(array(ApiVersion), "0+")
    throttle_time_ms: int = f(INT32, "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = f(array(SupportedFeatureKey), "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = f(INT64, "3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = f(array(FinalizedFeatureKey), "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = f(BOOL, "3+", tag=3, ignorable=True)


SPEC = ApiSpec(ApiKey.API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse)
