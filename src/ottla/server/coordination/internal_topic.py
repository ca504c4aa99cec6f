"""Internal topic of a coordinator's state, created when the coordinator is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.kafka.internal_topics import MAX_DEFAULT_REPLICAS
from ottla.metadata.image import MetadataImage

if TYPE_CHECKING:
    from ottla.protocol.messages.create_topics import CreatableTopic


class InternalTopic(NamedTuple):
    """An internal topic with Apache Kafka's settings."""

    name: str
    partitions: str
    """The broker's setting of the partition count."""
    replication_factor: str
    """The broker's setting of the replication factor; enforced if set, else min(3, live brokers)."""
    configs: Callable[[BrokerConfig], Mapping[str, str]]
    """Configs of the topic."""

    def creation(self, image: MetadataImage, config: BrokerConfig) -> CreatableTopic:
        """The topic of a CreateTopics request."""
        from ottla.protocol.messages.create_topics import (  # imported here: once for a topic
            CreatableTopic,
            CreatableTopicConfig,
        )

        replicas = max(1, min(MAX_DEFAULT_REPLICAS, len(image.active_brokers())))
        if config.is_set(self.replication_factor):
            replicas = config.get_int(self.replication_factor)
        return CreatableTopic(
            name=self.name,
            num_partitions=config.get_int(self.partitions),
            replication_factor=replicas,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in self.configs(config).items()],
        )
