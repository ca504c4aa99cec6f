"""Features of a cluster: requests, and the service `Cluster.features`. See `client.admin.topics`."""

from __future__ import annotations

from collections.abc import Sequence

import ottla
from ottla.client.admin.router import ClusterService, request_timeout_s
from ottla.client.wire.connection import CLIENT_NAME, Connection
from ottla.client.wire.failure import raise_for
from ottla.client.wire.model import FeatureInfo, FeatureUpdate
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.registry import ApiKey


def describe_features(connection: Connection) -> dict[str, FeatureInfo]:
    """The features that the broker supports or the cluster has finalized, by name."""
    request = ApiVersionsRequest(client_software_name=CLIENT_NAME, client_software_version=ottla.__version__)
    response: ApiVersionsResponse = connection.request(ApiKey.API_VERSIONS, request)
    raise_for(response.error_code, "the features")
    levels = {item.name: item.max_version_level for item in response.finalized_features}
    supported = {item.name: (item.min_version, item.max_version) for item in response.supported_features}
    return {
        name: FeatureInfo(levels.get(name, 0), *supported.get(name, (0, 0))) for name in sorted({*levels, *supported})
    }


def update_features(
    connection: Connection, updates: Sequence[FeatureUpdate], timeout_ms: int, *, validate_only: bool
) -> None:
    """UpdateFeatures: all of them, or none. Raises KafkaError with the controller's reason."""
    keys = [
        FeatureUpdateKey(feature=each.feature, max_version_level=each.level, upgrade_type=each.upgrade_type)
        for each in updates
    ]
    request = UpdateFeaturesRequest(timeout_ms=timeout_ms, feature_updates=keys, validate_only=validate_only)
    response: UpdateFeaturesResponse = connection.request(
        ApiKey.UPDATE_FEATURES, request, timeout_s=request_timeout_s(timeout_ms)
    )
    raise_for(response.error_code, "the features", response.error_message)
    for result in response.results:
        raise_for(result.error_code, result.feature, result.error_message)


class FeatureService(ClusterService):
    """Features and their levels."""

    def all(self) -> dict[str, FeatureInfo]:
        """The finalized level of each feature by name, with the range that the connected broker supports."""
        return self._router.retry(lambda: describe_features(self._router.any_connection()))

    def update(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Change feature levels, all or none. Raises KafkaError with the controller's reason."""
        timeout_ms = self._router.timeout_ms()
        self._router.change(
            lambda connection: update_features(connection, updates, timeout_ms, validate_only=validate_only)
        )
