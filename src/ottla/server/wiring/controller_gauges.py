"""What a node shows of the metadata that it has and, while its controller is the active one, of the cluster.

Names as on Kafka's dashboards. Partitions of the cluster are counted once an image that changed them, when a scrape
asks; a sum over all nodes is right, since only the active controller counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.controller.driver import Controller
from ottla.metadata.image import NO_LEADER, MetadataImage, TopicImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.metrics.registry import MetricsRegistry

_CONTROLLER = "kafka_controller_kafkacontroller_"


class PartitionTally:
    """Partitions of the whole cluster; counted again when the topics of the image are others."""

    __slots__ = ("_topics", "_total", "offline", "unpreferred")

    def __init__(self) -> None:
        self._topics: Mapping[str, TopicImage] | None = None
        self.offline = 0
        """Without a leader."""
        self.unpreferred = 0
        """Led by another than their first replica, or by nobody."""

    def of(self, image: MetadataImage) -> PartitionTally:
        """Itself, with the counts of `image`."""
        if self._topics is not image.topics:
            self._topics = image.topics
            partitions = [each for topic in image.topics.values() for each in topic.partitions.values()]
            self.offline = sum(each.leader == NO_LEADER for each in partitions)
            self.unpreferred = sum(each.leader != each.replicas[0] for each in partitions)
        return self


def register_controller_gauges(registry: MetricsRegistry, controller: Controller, publisher: MetadataPublisher) -> None:
    """Make the gauges of one node, whatever its roles."""
    tally = PartitionTally()

    def active(name: str, text: str, count: Callable[[MetadataImage], int]) -> None:
        registry.gauge(
            f"{_CONTROLLER}{name}",
            f"{text}, as the active controller sees them.",
            read=lambda: count(publisher.image) if controller.active else 0,
        )

    registry.gauge(
        f"{_CONTROLLER}activecontrollercount", "1 where the active controller is.", read=lambda: int(controller.active)
    )
    active("activebrokercount", "Brokers that are not fenced", lambda image: _brokers(image, fenced=False))
    active("fencedbrokercount", "Brokers that are registered and fenced", lambda image: _brokers(image, fenced=True))
    active("offlinepartitionscount", "Partitions without a leader", lambda image: tally.of(image).offline)
    active(
        "preferredreplicaimbalancecount",
        "Partitions that another than their first replica leads",
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
        "Migration from ZooKeeper: 0 never, 2 not begun, 1 both are written, 3 completed.",
        read=lambda: publisher.image.zk_migration_state,
    )
    registry.gauge(
        "kafka_server_broker_metadata_metrics_last_applied_record_offset",
        "The offset of the metadata log up to which this node knows the cluster.",
        read=lambda: publisher.image.offset,
    )


def register_write_behind_lag(registry: MetricsRegistry, behind: Callable[[], int]) -> None:
    """Make the gauge of a controller that leads a migration from ZooKeeper."""
    registry.gauge(
        f"{_CONTROLLER}zkwritebehindlag",
        "Committed records that ZooKeeper's tree lacks, as its writer sees it.",
        read=behind,
    )


def _brokers(image: MetadataImage, *, fenced: bool) -> int:
    return sum(broker.fenced is fenced for broker in image.brokers.values())
