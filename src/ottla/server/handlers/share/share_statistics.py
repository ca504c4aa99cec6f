"""Metrics of share groups on partition leaders, under Kafka's names.

Requests are counted once for each topic, as Apache Kafka does. The series of a topic are removed with it; they have the
bound of all series by topic. Series of share partitions are in `share_series`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage
from ottla.metrics.registry import MetricsRegistry
from ottla.server.coordination.share_partitions import SharePartitions
from ottla.share.acknowledgements import AcknowledgeType, RecordDecision

_ACKNOWLEDGEMENTS = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
_TOPIC_METRICS = (
    ("fetches", "totalsharefetchrequests", "ShareFetch requests, counted once for each topic."),
    ("failed_fetches", "failedsharefetchrequests", "ShareFetch requests that failed for a topic."),
    ("acknowledgements", "totalshareacknowledgementrequests", "Requests with acknowledgements for a topic."),
    ("failed_acknowledgements", "failedshareacknowledgementrequests", "Failed requests with acknowledgements."),
)
"""(attribute of ShareTopicStatistics, Kafka's name of the metric, help)."""


class ShareTopicStatistics:
    """Requests of share groups for one topic, or for all of them."""

    __slots__ = tuple(attribute for attribute, _, _ in _TOPIC_METRICS)

    def __init__(self, registry: MetricsRegistry, topic: str) -> None:
        for attribute, name, text in _TOPIC_METRICS:
            setattr(self, attribute, registry.counter(_topic_metric(name), text, {"topic": topic}))

    def count(self, attribute: str) -> None:
        """Add 1 to a counter."""
        getattr(self, attribute).value += 1


def _topic_metric(name: str) -> str:
    return f"kafka_server_brokertopicmetrics_{name}_total"


class ShareStatistics:
    """ShareGroupMetrics, ShareSessionCache, and the requests in BrokerTopicMetrics, of one broker."""

    __slots__ = ("_acknowledgements", "_all_topics", "_registry", "_topics")

    def __init__(self, registry: MetricsRegistry, partitions: SharePartitions) -> None:
        self._registry = registry
        self._all_topics = ShareTopicStatistics(registry, "")
        self._topics: dict[str, ShareTopicStatistics] = {}
        self._acknowledgements = {
            kind: registry.counter(
                _ACKNOWLEDGEMENTS, "Acknowledged records of share groups, by type.", {"ackType": kind.name.title()}
            )
            for kind in AcknowledgeType
        }
        prefix = "kafka_server_sharesessioncache_"
        registry.gauge(f"{prefix}sharesessionscount", "Open share sessions.", read=lambda: partitions.counts().sessions)
        registry.gauge(
            f"{prefix}sharepartitionscount",
            "Partitions in all share sessions.",
            read=lambda: partitions.counts().session_partitions,
        )
        registry.read_counter(
            f"{prefix}sharesessionevictions_total",
            "Share sessions that ended with their connection.",
            lambda: partitions.counts().evictions,
        )

    def count(self, decisions: Sequence[RecordDecision]) -> None:
        """Count acknowledgements that were accepted."""
        for first, last, kind in decisions:
            self._acknowledgements[kind].value += last - first + 1

    def count_request(self, attribute: str, topic: str | None) -> None:
        """Count a request for a topic, or its failure; None for an unknown topic.

        `attribute` is a field of `ShareTopicStatistics`.
        """
        self._all_topics.count(attribute)
        if topic is None:
            return
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = ShareTopicStatistics(self._registry, topic)
        found.count(attribute)

    def follow(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Remove the series of deleted topics."""
        for topic in changes.deleted_topics:
            if image.topic(topic.name) is None and self._topics.pop(topic.name, None) is not None:
                for _, metric, _ in _TOPIC_METRICS:
                    self._registry.remove(_topic_metric(metric), {"topic": topic.name})
