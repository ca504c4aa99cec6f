"""Configs of all resources: requests, and the service `Cluster.configs`. See `client.admin.topics`."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.client.admin.router import ClusterService
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_for
from ottla.client.wire.model import CONFIG_SOURCES, ConfigEntry, ConfigOperation, ResourceType
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.registry import ApiKey

DEFAULT_CONFIG_SOURCE = 5


def describe_configs(
    connection: Connection, resource_type: ResourceType, name: str, keys: Sequence[str] | None
) -> list[ConfigEntry]:
    """DescribeConfigs of one resource, sorted by name."""
    resource = DescribeConfigsResource(
        resource_type=int(resource_type),
        resource_name=name,
        configuration_keys=None if keys is None else list(keys),
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=True)
    response: DescribeConfigsResponse = connection.request(ApiKey.DESCRIBE_CONFIGS, request)
    entries: list[ConfigEntry] = []
    for result in response.results:
        raise_for(result.error_code, _resource_words(resource_type, name), result.error_message)
        entries.extend(
            ConfigEntry(
                config.name,
                config.value,
                CONFIG_SOURCES.get(config.config_source, "unknown"),
                config.config_source == DEFAULT_CONFIG_SOURCE,
                config.read_only,
                config.is_sensitive,
                config.documentation,
            )
            for config in result.configs
        )
    return sorted(entries, key=lambda entry: entry.name)


def alter_configs(
    connection: Connection,
    resource_type: ResourceType,
    name: str,
    changes: Sequence[tuple[str, ConfigOperation, str | None]],
    *,
    validate_only: bool,
) -> None:
    """IncrementalAlterConfigs of one resource (KIP-339)."""
    resource = AlterConfigsResource(
        resource_type=int(resource_type),
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=int(operation), value=value) for key, operation, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    response: IncrementalAlterConfigsResponse = connection.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
    for result in response.responses:
        raise_for(result.error_code, _resource_words(resource_type, name), result.error_message)


def _resource_words(resource_type: ResourceType, name: str) -> str:
    return f"configs of {resource_type.name.lower().replace('_', ' ')} {name!r}"


class ConfigService(ClusterService):
    """Configs of topics, brokers, groups and client metrics subscriptions."""

    def describe(self, resource_type: ResourceType, name: str, keys: Sequence[str] | None = None) -> list[ConfigEntry]:
        """The configs of a topic or a broker (its node id as text), all or those of `keys`, sorted by name."""

        def attempt() -> list[ConfigEntry]:
            return describe_configs(self._connection_for(resource_type, name), resource_type, name, keys)

        return self._router.retry(attempt)

    def alter(
        self,
        resource_type: ResourceType,
        name: str,
        changes: Sequence[tuple[str, ConfigOperation, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change single configs (IncrementalAlterConfigs); others are unchanged. All changes are applied or none."""
        self._router.change(
            lambda connection: alter_configs(connection, resource_type, name, changes, validate_only=validate_only),
            to=lambda: self._connection_for(resource_type, name),
        )

    def _connection_for(self, resource_type: ResourceType, name: str) -> Connection:
        """A connection for a resource: static configs of a broker are known only to it, all others to every broker."""
        if resource_type is not ResourceType.BROKER or not name:
            return self._router.any_connection()
        self._router.refresh([])
        return self._router.broker_connection(name)
