"""Share groups of one broker: the share coordinator and the persister, created when the cluster first uses them.

A broker whose cluster has no `__share_group_state` loads none of their code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.internal_topics import SHARE_GROUP_STATE_TOPIC
from ottla.common.platform.peer import Address, PeerNetwork
from ottla.metadata.delta import all_changes
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.metrics.registry import MetricsRegistry
from ottla.server.coordination.coordinator_host import BrokerServices, CoordinatorHost, CoordinatorType
from ottla.server.metadata.topic_creation import Problems, TopicCreation

if TYPE_CHECKING:
    from ottla.protocol.messages.create_topics import CreatableTopic
    from ottla.replica.purgatory import Purgatory
    from ottla.server.coordination.dead_letter_writer import DeadLetterWriter
    from ottla.server.coordination.log_ends import LogEnds
    from ottla.server.coordination.share_partitions import SharePartitions
    from ottla.server.coordination.share_persister import CoordinatorSharePersister
    from ottla.server.coordination.share_state import ShareStateCoordination


class ShareGroups:
    """Owner of the share coordinator's host and of the persister."""

    __slots__ = (
        "_address_of",
        "_config",
        "_coordination",
        "_coordinations",
        "_host",
        "_log_ends",
        "_network",
        "_persister",
        "_publisher",
        "_registry",
        "topics",
    )

    def __init__(
        self,
        config: BrokerConfig,
        host: BrokerServices,
        publisher: MetadataPublisher,
        registry: MetricsRegistry,
        *,
        coordinations: dict[int, CoordinatorHost[Any]],
        network: PeerNetwork,
        address_of: Callable[[int], Address | None],
    ) -> None:
        """The share coordinator is added to `coordinations`, by FindCoordinator's key type."""
        self._config = config
        self._host = host
        self._publisher = publisher
        self._registry = registry
        self._coordinations = coordinations
        self._network = network
        self._address_of = address_of
        self._coordination: ShareStateCoordination | None = None
        self._persister: CoordinatorSharePersister | None = None
        self._log_ends: LogEnds | None = None
        self.topics: TopicCreation | None = None
        """Creates `__share_group_state` and dead-letter topics; set with the contexts of the handlers."""

    @property
    def coordination(self) -> ShareStateCoordination:
        """The host of the share coordinator; the first use creates it."""
        if self._coordination is None:
            from ottla.server.coordination.share_gauges import register_share_gauges  # imported here, as below
            from ottla.server.coordination.share_state import ShareStateCoordination

            found = self._coordination = ShareStateCoordination(self._config, self._host, self._publisher)
            self._coordinations[CoordinatorType.SHARE] = found
            register_share_gauges(self._registry, found.runtime, lambda: found.coordinator)
        return self._coordination

    @property
    def persister(self) -> CoordinatorSharePersister:
        """Access to the share coordinators of the cluster; the first use creates it."""
        if self._persister is None:
            from ottla.server.coordination.share_persister import (  # imported here: many brokers have no share groups
                CoordinatorSharePersister,
            )

            self._persister = CoordinatorSharePersister(
                self._host.node_id,
                self.coordination,
                self._network,
                image=lambda: self._publisher.image,
                address_of=self._address_of,
                create_topic=self._create_topic,
                clock=self._host.node_runtime.clock,
                scheduler=self._host.scheduler,
            )
        return self._persister

    @property
    def log_ends(self) -> LogEnds:
        """High watermarks of all partitions; the first use creates it."""
        if self._log_ends is None:
            from ottla.server.coordination.log_ends import LogEnds  # imported here, as above

            self._log_ends = LogEnds(
                self._host.node_id,
                self._host.replicas,
                self._network,
                image=lambda: self._publisher.image,
                address_of=self._address_of,
            )
        return self._log_ends

    def dead_letters(
        self, partitions: SharePartitions, purgatory: Purgatory, config: Callable[[], BrokerConfig]
    ) -> DeadLetterWriter:
        """Return a new writer of dead letters for `partitions`; `config` returns the broker's settings."""
        from ottla.server.coordination.dead_letter_producer import DeadLetterProducer  # imported here: as above
        from ottla.server.coordination.dead_letter_writer import DeadLetterWriter

        return DeadLetterWriter(
            partitions,
            self._host,
            DeadLetterProducer(self._host, purgatory, self._network, self._address_of),
            image=lambda: self._publisher.image,
            config=config,
            create_topic=self._create_dead_letter_topic,
            registry=self._registry,
        )

    def follow(self, image: MetadataImage) -> None:
        """Create the coordinator with the first image that has its topic. Later images reach it as a coordinator."""
        if self._coordination is None and image.topic(SHARE_GROUP_STATE_TOPIC) is not None:
            self.coordination.follow(image, all_changes(image))

    def close(self) -> None:
        """Fail the calls of the persister, and close connections."""
        if self._persister is not None:
            self._persister.close()
        if self._log_ends is not None:
            self._log_ends.close()

    def _create_dead_letter_topic(self, topic: CreatableTopic, done: Callable[[KafkaError | None], None]) -> None:
        if self.topics is None:
            done(KafkaError(ErrorCode.NOT_CONTROLLER))  # the broker is not up yet; the caller tries again
        else:
            self.topics.create([topic], lambda problems: done(problems.get(topic.name)))

    def _create_topic(self, done: Callable[[KafkaError | None], None]) -> None:
        topic = self.coordination.topic
        if self.topics is None:
            done(None)  # the broker is not up yet; the caller tries again
            return

        def created(problems: Problems) -> None:
            error = problems.get(topic.name)
            if error is not None:
                self._host.failures.warn(f"creation of {topic.name}", error.message)
            done(error)

        self.topics.create([topic.creation(self._publisher.image, self._config)], created)
