"""What handlers of this room may touch: the group coordinator, and the way to it."""

from __future__ import annotations

from ottla.common.broker_configs import BrokerConfig
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.server.failures import Failures
from ottla.server.metadata_cache import MetadataCache
from ottla.server.topic_creation import TopicCreation


class GroupContext:
    """Groups and their offsets, and where they are coordinated."""

    __slots__ = ("config", "failures", "group_coordinator", "metadata", "topics")

    def __init__(
        self,
        config: BrokerConfig,
        *,
        group_coordinator: GroupCoordinator,
        metadata: MetadataCache,
        topics: TopicCreation,
        failures: Failures,
    ) -> None:
        self.config = config
        self.group_coordinator = group_coordinator
        self.metadata = metadata
        self.topics = topics
        self.failures = failures

    def use_config(self, config: BrokerConfig) -> None:
        """Go on with these settings."""
        self.config = config
