"""Metrics of share groups on partition leaders, under Kafka's names."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.metrics.registry import MetricsRegistry
from ottla.server.coordination.share_partitions import SharePartitions
from ottla.share.acknowledgements import AcknowledgeType, RecordDecision

_ACKNOWLEDGEMENTS = "kafka_server_sharegroupmetrics_recordacknowledgements_total"


class ShareStatistics:
    """ShareGroupMetrics and ShareSessionCache of one broker."""

    __slots__ = ("_acknowledgements",)

    def __init__(self, registry: MetricsRegistry, partitions: SharePartitions) -> None:
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
