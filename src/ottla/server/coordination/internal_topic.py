"""The topic that a coordinator keeps its state in, and how it is made when the coordinator is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.common.config.broker_configs import BrokerConfig
from ottla.controller.reassignments import MAX_DEFAULT_REPLICAS
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig


class InternalTopic(NamedTuple):
    """One of them, as Apache Kafka makes it."""

    name: str
    partitions: str
    """The broker's setting of how many it gets."""
    replication_factor: str
    """The broker's setting; a value that is set is enforced, else it is min(3, live brokers)."""
    configs: Callable[[BrokerConfig], Mapping[str, str]]
    """Settings of the topic."""

    def creation(self, image: MetadataImage, config: BrokerConfig) -> CreatableTopic:
        """What the controller is asked for."""
        replicas = max(1, min(MAX_DEFAULT_REPLICAS, len(image.active_brokers())))
        if config.is_set(self.replication_factor):
            replicas = config.get_int(self.replication_factor)
        return CreatableTopic(
            name=self.name,
            num_partitions=config.get_int(self.partitions),
            replication_factor=replicas,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in self.configs(config).items()],
        )
