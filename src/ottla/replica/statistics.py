"""Replication counters of one broker, under the names of Kafka's dashboards."""

from __future__ import annotations

from ottla.metrics.registry import MetricsRegistry

_MANAGER = "kafka_server_replicamanager_"


class ReplicationStatistics:
    """ISR changes requested by the leaders of this broker, and truncations of its followers."""

    __slots__ = ("committed_truncations", "failed_isr_updates", "isr_expands", "isr_shrinks")

    def __init__(self, registry: MetricsRegistry) -> None:
        self.isr_shrinks = registry.counter(f"{_MANAGER}isrshrinks_total", "ISR shrinks of this broker's partitions.")
        self.isr_expands = registry.counter(
            f"{_MANAGER}isrexpands_total", "ISR expansions of this broker's partitions."
        )
        self.failed_isr_updates = registry.counter(
            f"{_MANAGER}failedisrupdates_total", "ISR changes that the controller rejected."
        )
        self.committed_truncations = registry.counter(
            "ottla_replica_committed_truncations_total",
            "Followers of this broker that were truncated below their high watermark, as after an unclean election.",
        )
