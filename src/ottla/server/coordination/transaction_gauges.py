"""What the transaction coordinator shows of its state; names as on Kafka's dashboards."""

from __future__ import annotations

from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.transaction.operations import NAMES
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.metrics.registry import MetricsRegistry
from ottla.server.coordination.gauges import register_coordinator_gauges
from ottla.server.transactions.transaction_markers import TransactionMarkers

_MARKERS = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"


def register_transaction_gauges(
    registry: MetricsRegistry, runtime: CoordinatorRuntime[TransactionShard], markers: TransactionMarkers
) -> None:
    """Make the gauges of one broker's transaction coordinator and of its markers."""
    gauge = registry.gauge
    gauge(
        f"{_MARKERS}unknowndestinationqueuesize",
        "Markers that wait for a partition to get a leader.",
        read=lambda: markers.leaderless_count,
    )
    gauge(
        f"{_MARKERS}logappendretryqueuesize",
        "Transactions that have all markers and whose end is to be written again.",
        read=lambda: sum(shard.endings.unwritten_count for _, shard in runtime.active_shards()),
    )
    gauge(
        "ottla_transaction_markers_pending",
        "Markers that are written here, are under way to other brokers, or wait for that.",
        read=lambda: markers.pending_count,
    )
    gauge(
        "ottla_transactional_ids",
        "Transactional ids that this broker coordinates.",
        read=lambda: sum(len(shard.transactions) for _, shard in runtime.active_shards()),
    )
    gauge(
        "ottla_transactions_open",
        "Transactions that this broker coordinates, ongoing or decided and not ended.",
        read=lambda: sum(shard.open_count for _, shard in runtime.active_shards()),
    )
    register_coordinator_gauges(registry, runtime, "transaction", NAMES)
