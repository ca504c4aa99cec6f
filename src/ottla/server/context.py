"""What handlers work with: the broker's parts, wired once in `server.broker` and handed to every handler."""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.broker_configs import BrokerConfig
from ottla.common.clock import BlockingPool, Clock, Rng
from ottla.common.disk import Disk
from ottla.common.errors import ProtocolError
from ottla.controller.driver import Controller
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.metadata.image import NO_LEADER, MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.topic_names import INTERNAL_TOPICS
from ottla.protocol.codec import MAX_REQUEST_ELEMENTS
from ottla.quorum.driver import QuorumDriver
from ottla.replica.fetch_session import FetchSessionCache, TopicKey
from ottla.replica.manager import ReplicaManager
from ottla.replica.purgatory import Purgatory
from ottla.server.failures import Failures
from ottla.server.forwarding import ControllerChannel
from ottla.server.in_flight import InFlight
from ottla.server.pool_share import PoolShare
from ottla.server.producer_id_source import ProducerIdSource
from ottla.server.statistics import BrokerStatistics
from ottla.server.topic_arrivals import TopicArrivals

UNKNOWN_PARTITIONS_PER_REQUEST = 1000
"""A request may name so many partitions more than there are, for clients that know of topics deleted since."""

REQUEST_ELEMENTS = 20_000
"""Elements of arrays in one request of a declared message; each takes microseconds, while all others wait."""
ELEMENTS_PER_PARTITION = 8
"""So many more for each partition that there is: an answer of a broker about one names its replicas too."""


class ReachableBroker(NamedTuple):
    """A broker as clients of one listener are told of it."""

    node_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


class BrokerContext:
    """The parts of one running broker. Handlers read it; only `server.broker` writes."""

    __slots__ = (
        "_brokers_on",
        "_brokers_on_image",
        "_partition_limit",
        "_partition_limit_image",
        "clock",
        "cluster_id",
        "compute_pool",
        "config",
        "controller",
        "controller_channel",
        "disk",
        "failures",
        "fetch_max_bytes",
        "group_coordinator",
        "in_flight",
        "node_id",
        "pool",
        "producer_ids",
        "publisher",
        "purgatory",
        "quorum",
        "replicas",
        "rng",
        "sessions",
        "statistics",
        "topic_arrivals",
        "topics_on_demand",
    )

    def __init__(
        self,
        *,
        config: BrokerConfig,
        cluster_id: str,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        pool: BlockingPool,
        publisher: MetadataPublisher,
        quorum: QuorumDriver,
        controller: Controller,
        controller_channel: ControllerChannel,
        topic_arrivals: TopicArrivals,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        sessions: FetchSessionCache,
        producer_ids: ProducerIdSource,
        statistics: BrokerStatistics,
        failures: Failures,
        in_flight: InFlight,
        group_coordinator: GroupCoordinator,
    ) -> None:
        self.node_id = config.node_id
        self.cluster_id = cluster_id
        self.disk = disk
        self.clock = clock
        self.rng = rng
        self.pool = pool
        self.compute_pool = PoolShare(pool)
        self.publisher = publisher
        self.quorum = quorum
        self.controller = controller
        self.controller_channel = controller_channel
        self.topic_arrivals = topic_arrivals
        self.topics_on_demand: set[str] = set()
        """Names that are just being created for clients (`server.internal_topics`)."""
        self.replicas = replicas
        self.purgatory = purgatory
        self.sessions = sessions
        self.producer_ids = producer_ids
        self.statistics = statistics
        self.failures = failures
        self.in_flight = in_flight
        self.group_coordinator = group_coordinator
        self._brokers_on: dict[tuple[str, bool], list[ReachableBroker]] = {}
        self._brokers_on_image: MetadataImage | None = None
        self._partition_limit = UNKNOWN_PARTITIONS_PER_REQUEST
        self._partition_limit_image: MetadataImage | None = None
        self.use_config(config)

    def use_config(self, config: BrokerConfig) -> None:
        """Take over settings, at the start and when a dynamic one changed."""
        self.config = config
        self.fetch_max_bytes = config.get_int("fetch.max.bytes")

    @property
    def image(self) -> MetadataImage:
        """The newest committed metadata."""
        return self.publisher.image

    @property
    def internal_topics(self) -> frozenset[str]:
        return INTERNAL_TOPICS

    def brokers_on(self, listener_name: str, *, include_fenced: bool = False) -> list[ReachableBroker]:
        """Brokers that have an address on a listener, by id; remembered as long as the brokers are the same."""
        image = self.publisher.image
        if self._brokers_on_image is None or self._brokers_on_image.brokers is not image.brokers:
            self._brokers_on.clear()
            self._brokers_on_image = image
        found = self._brokers_on.get((listener_name, include_fenced))
        if found is None:
            found = []
            for broker_id in sorted(image.brokers):
                broker = image.brokers[broker_id]
                endpoint = broker.endpoint(listener_name)
                if endpoint is not None and (include_fenced or not broker.fenced):
                    found.append(ReachableBroker(broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced))
            self._brokers_on[(listener_name, include_fenced)] = found
        return found

    def partition_limit(self) -> int:
        """How many partitions one request or fetch session may name: those that there are, and some more."""
        image = self.publisher.image
        if self._partition_limit_image is not image:
            self._partition_limit_image = image
            self._partition_limit = image.partition_count() + UNKNOWN_PARTITIONS_PER_REQUEST
        return self._partition_limit

    def check_partition_count(self, named: int) -> None:
        """Raise ProtocolError when a request names too many: each costs an answer, made while all others wait."""
        if named > UNKNOWN_PARTITIONS_PER_REQUEST and named > self.partition_limit():
            raise ProtocolError(f"a request names {named} partitions, far more than there are")

    def element_limit(self) -> int:
        """How many elements of arrays one request may have in APIs that don't count partitions themselves."""
        return min(MAX_REQUEST_ELEMENTS, REQUEST_ELEMENTS + ELEMENTS_PER_PARTITION * self.partition_limit())

    def alive_brokers(self) -> frozenset[int]:
        """Ids of the brokers that are not fenced."""
        return frozenset(broker.broker_id for broker in self.publisher.image.brokers.values() if not broker.fenced)

    def controller_id(self) -> int:
        """The broker that admin clients are sent to: any live one serves; the active controller needs no detour."""
        leader_id = self.quorum.leader.leader_id
        leader = self.publisher.image.brokers.get(leader_id)
        return self.node_id if leader is None or leader.fenced else leader_id

    def current_leader(self, topic: TopicKey, index: int) -> tuple[int, int] | None:
        """(leader id, leader epoch) as the metadata has it, for answers to a client that asked the wrong broker."""
        image = self.publisher.image
        known = image.topic(topic) if isinstance(topic, str) else image.topic_by_id(topic)
        partition = None if known is None else known.partitions.get(index)
        if partition is None or partition.leader == NO_LEADER:
            return None
        return partition.leader, partition.leader_epoch
