"""Context of the group handlers: the group coordinator, and access to it and to other coordinators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.common.config.broker_configs import BrokerConfig
from ottla.server.coordination.coordinator_host import CoordinatorHost
from ottla.server.coordination.groups import GroupCoordination
from ottla.server.metadata.metadata_cache import MetadataCache
from ottla.server.metadata.topic_creation import TopicCreation
from ottla.server.requests.failures import Failures

if TYPE_CHECKING:
    from ottla.coordinator.group.coordinator import GroupCoordinator
    from ottla.server.coordination.share_groups import ShareGroupService


class GroupContext:
    """Dependencies of the group handlers."""

    __slots__ = ("_groups", "config", "coordinations", "failures", "metadata", "share_coordination", "topics")

    def __init__(
        self,
        config: BrokerConfig,
        *,
        groups: GroupCoordination,
        coordinations: Mapping[int, CoordinatorHost[Any]],
        share_coordination: Callable[[], CoordinatorHost[Any]],
        metadata: MetadataCache,
        topics: TopicCreation,
        failures: Failures,
    ) -> None:
        """`coordinations` are those of this broker, by FindCoordinator's key types; `share_coordination` creates that
        of share groups when it is first used."""
        self.config = config
        self.coordinations = coordinations
        self.share_coordination = share_coordination
        self._groups = groups
        self.metadata = metadata
        self.topics = topics
        self.failures = failures

    @property
    def group_coordinator(self) -> GroupCoordinator:
        """The coordinator; the first use loads it."""
        return self._groups.coordinator

    @property
    def share_groups(self) -> ShareGroupService:
        """Share groups; the first use loads them."""
        return self._groups.share_groups

    def use_config(self, config: BrokerConfig) -> None:
        """Apply changed broker settings."""
        self.config = config
