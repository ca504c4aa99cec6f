"""UpdateFeatures (key 57): raise or lower finalized features (KIP-584, KIP-778). Flexible from the start.

1 replaces `allow_downgrade` by the upgrade type and adds validation without changes. 2 has no result for each feature:
all or none (KIP-1022).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT8, INT16, INT32, STRING, array, f, message, struct


@struct
class FeatureUpdateKey:
    feature: str = f(STRING, "0+")
    max_version_level: int = f(INT16, "0+")
    allow_downgrade: bool = f(BOOL, "0")
    upgrade_type: int = f(INT8, "1+", default=1)


@message("0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: int = f(INT32, "0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = f(array(FeatureUpdateKey), "0+")
    validate_only: bool = f(BOOL, "1+")


@struct
class UpdatableFeatureResult:
    feature: str = f(STRING, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)


@message("0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    results: list[UpdatableFeatureResult] = f(array(UpdatableFeatureResult), "0-1", ignorable=True)


SPEC = ApiSpec(ApiKey.UPDATE_FEATURES, UpdateFeaturesRequest, UpdateFeaturesResponse)
