"""Context of ShareFetch and ShareAcknowledge. Share partitions are created for the first request of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.platform.channel import Channel
from ottla.metadata.image import SHARE_GROUPS_DISABLED, share_groups_enabled
from ottla.metadata.publisher import MetadataPublisher
from ottla.metrics.registry import MetricsRegistry
from ottla.replica.purgatory import Purgatory
from ottla.server.coordination.coordinator_host import BrokerServices
from ottla.server.metadata.metadata_cache import MetadataCache
from ottla.server.requests.request_limits import RequestLimits
from ottla.server.requests.statistics import BrokerStatistics

if TYPE_CHECKING:
    from ottla.common.kafka.share_state import SharePersister
    from ottla.metrics.series import Step
    from ottla.server.coordination.share_partitions import DeadLetters, SharePartitions
    from ottla.server.handlers.share.share_statistics import ShareStatistics

DeadLettersFactory = Callable[["SharePartitions", Purgatory, Callable[[], BrokerConfig]], "DeadLetters"]


class SharePartitionContext:
    """Dependencies of the requests of share group members to partition leaders."""

    __slots__ = (
        "_closed_listeners",
        "_publisher",
        "_registry",
        "_share",
        "broker_statistics",
        "config",
        "dead_letters",
        "limits",
        "metadata",
        "persister",
        "purgatory",
        "services",
    )

    def __init__(
        self,
        config: BrokerConfig,
        *,
        services: BrokerServices,
        metadata: MetadataCache,
        publisher: MetadataPublisher,
        purgatory: Purgatory,
        limits: RequestLimits,
        statistics: BrokerStatistics,
        registry: MetricsRegistry,
        closed_listeners: list[Callable[[Channel], None]],
        persister: Callable[[], SharePersister],
    ) -> None:
        """`closed_listeners` are called with each closed connection; `persister` returns the access to coordinators."""
        self.config = config
        self.services = services
        self.metadata = metadata
        self._publisher = publisher
        self.purgatory = purgatory
        self.limits = limits
        self.broker_statistics = statistics
        self._registry = registry
        self._closed_listeners = closed_listeners
        self.persister = persister
        self.dead_letters: DeadLettersFactory | None = None
        """Creates the writer of dead letters; set before the first request."""
        self._share: tuple[SharePartitions, ShareStatistics] | None = None

    def check_enabled(self) -> None:
        """Raise KafkaError UNSUPPORTED_VERSION unless the cluster has share groups."""
        if not share_groups_enabled(self._publisher.image):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                SHARE_GROUPS_DISABLED,
            )

    @property
    def partitions(self) -> SharePartitions:
        """The share partitions; the first use creates them."""
        return self._created[0]

    @property
    def statistics(self) -> ShareStatistics:
        """Metrics of share groups, created with the share partitions."""
        return self._created[1]

    @property
    def _created(self) -> tuple[SharePartitions, ShareStatistics]:
        if self._share is None:
            # Imported here: few brokers need them.
            from ottla.server.coordination.share_partitions import SharePartitions
            from ottla.server.handlers.share.share_statistics import ShareStatistics

            partitions = SharePartitions(
                self.services,
                self.purgatory,
                self.persister(),
                self._make_dead_letters,
                lambda: self._publisher.image,
                self._registry.histogram(
                    "kafka_server_sharegroupmetrics_partitionloadtimems",
                    "Time from the first fetch of a share partition until its state is loaded, in ms.",
                ),
            )
            statistics = ShareStatistics(self._registry, partitions)
            self._publisher.register(partitions.follow)
            self._publisher.register(statistics.follow)
            self._closed_listeners.append(lambda channel: partitions.connection_closed(channel.id))
            self._share = partitions, statistics
        return self._share

    def collect(self) -> Iterator[Step]:
        """Series of share partitions for a scrape; none before the first share partition."""
        if self._share is not None:
            from ottla.server.coordination.share_series import share_partition_series  # imported here, as above

            yield from share_partition_series(self._share[0])

    def _make_dead_letters(self, partitions: SharePartitions) -> DeadLetters:
        if self.dead_letters is None:
            raise InvariantError("the broker has no writer of dead letters")
        return self.dead_letters(partitions, self.purgatory, lambda: self.config)

    def use_config(self, config: BrokerConfig) -> None:
        """Apply changed broker settings."""
        self.config = config

    def stop(self) -> None:
        """Drop the share partitions: the broker stops."""
        if self._share is not None:
            self._share[0].stop()
