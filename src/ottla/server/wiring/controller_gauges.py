"""Gauges of a node's metadata and, while its controller is the active one, of the cluster.

Named after Kafka's metrics. The cluster's partitions are counted once per image that changed them, on a scrape. The sum
over all nodes is correct, since only the active controller counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.controller.driver import Controller
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.metrics.registry import MetricsRegistry

_CONTROLLER = "kafka_controller_kafkacontroller_"


class PartitionTally:
    """Partition counts of the whole cluster; topics are counted again when they change."""

    __slots__ = ("_counted", "_topics", "offline", "unpreferred")

    def __init__(self) -> None:
        self._topics: Mapping[str, TopicImage] | None = None
        self._counted: dict[str, tuple[TopicImage, int]] = {}
        """Topics with their number of partitions that the preferred replica does not lead."""
        self.offline = 0
        """Without a leader."""
        self.unpreferred = 0
        """Not led by their first replica, or without a leader."""

    def of(self, image: MetadataImage) -> PartitionTally:
        """Returns itself, updated to the counts of `image`."""
        if self._topics is not image.topics:
            self._topics = image.topics
            before, self._counted = self._counted, {}
            for name, topic in image.topics.items():
                counted = before.get(name)
                if counted is None or counted[0] is not topic:
                    counted = topic, sum(each.leader != each.replicas[0] for each in topic.partitions.values())
                self._counted[name] = counted
            self.offline = sum(len(topic.leaderless) for topic in image.topics.values())
            self.unpreferred = sum(count for _, count in self._counted.values())
        return self


def register_controller_gauges(registry: MetricsRegistry, controller: Controller, publisher: MetadataPublisher) -> None:
    """Register the gauges of one node with any roles."""
    tally = PartitionTally()

    def active(name: str, text: str, count: Callable[[MetadataImage], int]) -> None:
        registry.gauge(
            f"{_CONTROLLER}{name}",
            f"{text}, as the active controller sees them.",
            read=lambda: count(publisher.image) if controller.active else 0,
        )

    registry.gauge(
        f"{_CONTROLLER}activecontrollercount", "1 on the active controller.", read=lambda: int(controller.active)
    )
    active("activebrokercount", "Brokers that are not fenced", lambda image: _brokers(image, fenced=False))
    active("fencedbrokercount", "Registered brokers that are fenced", lambda image: _brokers(image, fenced=True))
    active("offlinepartitionscount", "Partitions without a leader", lambda image: tally.of(image).offline)
    active(
        "preferredreplicaimbalancecount",
        "Partitions not led by their preferred (first) replica",
        lambda image: tally.of(image).unpreferred,
    )
    registry.gauge(f"{_CONTROLLER}globaltopiccount", "Topics.", read=lambda: len(publisher.image.topics))
    registry.gauge(
        f"{_CONTROLLER}globalpartitioncount",
        "Partitions of all topics.",
        read=lambda: float(publisher.image.partition_count()),
    )
    registry.gauge(
        f"{_CONTROLLER}zkmigrationstate",
        "State of the migration from ZooKeeper: 0 never, 2 not started, 1 both are written, 3 completed.",
        read=lambda: publisher.image.zk_migration_state,
    )
    registry.gauge(
        "kafka_server_broker_metadata_metrics_last_applied_record_offset",
        "Offset of the metadata log that this node has applied.",
        read=lambda: publisher.image.offset,
    )


def register_write_behind_lag(registry: MetricsRegistry, behind: Callable[[], int]) -> None:
    """Register the gauge of a controller that leads a migration from ZooKeeper."""
    registry.gauge(
        f"{_CONTROLLER}zkwritebehindlag",
        "Committed records not yet written to ZooKeeper.",
        read=behind,
    )


def _brokers(image: MetadataImage, *, fenced: bool) -> int:
    return sum(broker.fenced is fenced for broker in image.brokers.values())
