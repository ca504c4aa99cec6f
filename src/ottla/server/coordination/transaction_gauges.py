"""Gauges of the transaction coordinator's state; named after Kafka's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.metrics.registry import MetricsRegistry
from ottla.server.coordination.gauges import register_coordinator_gauges
from ottla.server.transactions.transaction_markers import TransactionMarkers

if TYPE_CHECKING:
    from ottla.coordinator.transaction.shard import TransactionShard

OPERATIONS = (
    "init-producer-id",
    "end-txn",
    "add-partitions-to-txn",
    "add-offsets-to-txn",
    "verify-partitions-in-txn",
    "describe-transactions",
    "list-transactions",
    "complete-transaction",
    "abort-timed-out-transaction",
)
"""Names by which the runtime counts operations, timers excluded. The gauges exist before the coordinator is loaded."""
_MARKERS = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"


def register_transaction_gauges(
    registry: MetricsRegistry, runtime: CoordinatorRuntime[TransactionShard], markers: TransactionMarkers
) -> None:
    """Register the gauges of one broker's transaction coordinator and of its markers."""
    gauge = registry.gauge
    gauge(
        f"{_MARKERS}unknowndestinationqueuesize",
        "Transaction markers that wait for a partition's leader election.",
        read=lambda: markers.leaderless_count,
    )
    gauge(
        f"{_MARKERS}logappendretryqueuesize",
        "Transactions with all markers written, waiting for a retry of their completion record.",
        read=lambda: sum(shard.endings.unwritten_count for _, shard in runtime.active_shards()),
    )
    gauge(
        "ottla_transaction_markers_pending",
        "Transaction markers being written here, in flight to other brokers, or queued.",
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
    register_coordinator_gauges(registry, runtime, "transaction", OPERATIONS)
