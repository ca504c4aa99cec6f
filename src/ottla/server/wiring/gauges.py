"""Gauges of the broker's state, read when metrics are rendered; named after Kafka's metrics."""

from __future__ import annotations

from ottla.common.config.broker_configs import BrokerConfig
from ottla.metrics.registry import MetricsRegistry
from ottla.server.wiring.components import BrokerComponents
from ottla.server.wiring.replication_gauges import register_replication_gauges


def register_gauges(registry: MetricsRegistry, parts: BrokerComponents, config: BrokerConfig) -> None:
    """Register the gauges of one broker. Each read is cheap; those over partitions are linear in their number."""
    max_transaction_timeout_ms = config.get_int("transaction.max.timeout.ms")
    register_replication_gauges(registry, parts.replicas, parts.node_runtime.clock, max_transaction_timeout_ms)
    registry.gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Parked requests: fetches that wait for records, produces that wait for acknowledgement.",
        read=lambda: len(parts.purgatory),
    )
    registry.gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "Fetch sessions.",
        read=lambda: len(parts.sessions),
    )
    registry.gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
        "Partitions in fetch sessions.",
        read=parts.sessions.partition_count,
    )
    registry.gauge(
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
        "Fetch sessions evicted for others.",
        read=lambda: parts.sessions.evictions,
    )
    registry.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that failed.",
        read=lambda: len(parts.logs.offline_directories),
    )
    registry.gauge("ottla_storage_open_files", "Open segment and index files.", read=lambda: parts.logs.open_file_count)
    registry.gauge("ottla_server_defects", "Unexpected errors that were contained.", read=lambda: parts.failures.count)
