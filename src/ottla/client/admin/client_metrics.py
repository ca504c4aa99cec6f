"""Client metrics subscriptions (KIP-714): requests, and the service `Cluster.client_metrics`."""

from __future__ import annotations

from typing import NamedTuple

import ottla
from ottla.client.admin.configs import alter_configs, describe_configs
from ottla.client.admin.router import ClusterService
from ottla.client.wire.connection import CLIENT_NAME, Connection
from ottla.client.wire.failure import raise_for
from ottla.client.wire.model import ConfigOperation, ResourceType
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from ottla.protocol.registry import ApiKey


class ClientMetricsSubscription(NamedTuple):
    """A subscription with its settings, as text."""

    name: str
    interval_ms: int
    metrics: str
    match: str


class Receiver(NamedTuple):
    """A broker, and whether it receives client metrics."""

    broker_id: int
    receives: bool


def list_subscriptions(connection: Connection) -> list[str]:
    """ListConfigResources: names of the subscriptions, sorted."""
    request = ListConfigResourcesRequest(resource_types=[int(ResourceType.CLIENT_METRICS)])
    if connection.version_for(ApiKey.LIST_CONFIG_RESOURCES) == 0:
        request = ListConfigResourcesRequest()
    response: ListConfigResourcesResponse = connection.request(ApiKey.LIST_CONFIG_RESOURCES, request)
    raise_for(response.error_code, "the client metrics subscriptions")
    return sorted(item.resource_name for item in response.config_resources)


def receives_metrics(connection: Connection) -> bool:
    """ApiVersions: whether a broker advertises PushTelemetry."""
    request = ApiVersionsRequest(client_software_name=CLIENT_NAME, client_software_version=ottla.__version__)
    response: ApiVersionsResponse = connection.request(ApiKey.API_VERSIONS, request)
    raise_for(response.error_code, "the versions")
    return any(item.api_key == ApiKey.PUSH_TELEMETRY for item in response.api_keys)


class ClientMetricsService(ClusterService):
    """Client metrics subscriptions; `Cluster.configs` changes their settings."""

    def all(self) -> list[ClientMetricsSubscription]:
        """All subscriptions, by name."""

        def attempt() -> list[ClientMetricsSubscription]:
            connection = self._router.any_connection()
            return [_described(connection, name) for name in list_subscriptions(connection)]

        return self._router.retry(attempt)

    def receivers(self) -> list[Receiver]:
        """All live brokers, by id."""
        return self._router.ask_brokers(
            lambda connection, node_id: [Receiver(node_id, receives_metrics(connection))],
            lambda receiver: (receiver.broker_id, ""),
        )

    def delete(self, name: str) -> bool:
        """Delete a subscription, which is to delete its settings; returns False if it does not exist."""

        def change(connection: Connection) -> bool:
            kind = ResourceType.CLIENT_METRICS
            settings = [each.name for each in describe_configs(connection, kind, name, None) if not each.is_default]
            changes = [(each, ConfigOperation.DELETE, None) for each in settings]
            if changes:
                alter_configs(connection, kind, name, changes, validate_only=False)
            return bool(changes)

        return self._router.change(change)


def _described(connection: Connection, name: str) -> ClientMetricsSubscription:
    values = {
        each.name: each.value or "" for each in describe_configs(connection, ResourceType.CLIENT_METRICS, name, None)
    }
    return ClientMetricsSubscription(name, int(values["interval.ms"]), values["metrics"], values["match"])
