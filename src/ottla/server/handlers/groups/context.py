"""Context of the group handlers: the group coordinator, and access to it and to other coordinators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.common.config.broker_configs import BrokerConfig
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.server.coordination.coordinator_host import CoordinatorHost
from ottla.server.metadata.metadata_cache import MetadataCache
from ottla.server.metadata.topic_creation import TopicCreation
from ottla.server.requests.failures import Failures


class GroupContext:
    """Dependencies of the group handlers."""

    __slots__ = ("config", "coordinations", "failures", "group_coordinator", "metadata", "topics")

    def __init__(
        self,
        config: BrokerConfig,
        *,
        group_coordinator: GroupCoordinator,
        coordinations: Mapping[int, CoordinatorHost[Any]],
        metadata: MetadataCache,
        topics: TopicCreation,
        failures: Failures,
    ) -> None:
        """`coordinations` are those of this broker, by FindCoordinator's key types."""
        self.config = config
        self.coordinations = coordinations
        self.group_coordinator = group_coordinator
        self.metadata = metadata
        self.topics = topics
        self.failures = failures

    def use_config(self, config: BrokerConfig) -> None:
        """Apply changed broker settings."""
        self.config = config
