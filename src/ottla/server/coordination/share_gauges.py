"""Gauges of the share coordinator's state; named after Kafka's metrics where Kafka has the metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.metrics.registry import MetricsRegistry
from ottla.server.coordination.gauges import register_coordinator_gauges

if TYPE_CHECKING:
    from ottla.coordinator.share.coordinator import ShareCoordinator
    from ottla.coordinator.share.shard import ShareCoordinatorShard

OPERATIONS = (
    "initialize-share-group-state",
    "read-update-leader-epoch-state",
    "write-share-group-state",
    "delete-share-group-state",
    "read-share-group-state-summary",
    "delete-state-of-deleted-topics",
)
"""Names by which the runtime counts operations, timers excluded."""
_METRICS = "kafka_server_share_coordinator_metrics_"


def register_share_gauges(
    registry: MetricsRegistry,
    runtime: CoordinatorRuntime[ShareCoordinatorShard],
    coordinator: Callable[[], ShareCoordinator],
) -> None:
    """Register the gauges of one broker's share coordinator."""
    gauge = registry.gauge
    registry.read_counter(
        f"{_METRICS}write_total",
        "Records that writes and new leaders of share partitions added to the state.",
        read=lambda: coordinator().statistics.writes,
    )
    gauge(
        f"{_METRICS}write_latency_avg",
        "Average time of a WriteShareGroupState request in the share coordinator, in ms.",
        read=lambda: coordinator().statistics.write_latency_avg_ms,
    )
    gauge(
        f"{_METRICS}write_latency_max",
        "Longest time of a WriteShareGroupState request in the share coordinator, in ms.",
        read=lambda: coordinator().statistics.write_latency_max_ms,
    )
    gauge(
        f"{_METRICS}last_pruned_offset",
        "Highest offset of a partition of __share_group_state below which records were deleted.",
        read=lambda: max(coordinator().statistics.last_pruned_offsets.values(), default=0),
    )
    gauge(
        "ottla_share_partitions",
        "Share partitions whose state this broker coordinates.",
        read=lambda: sum(len(shard.states) for _, shard in runtime.active_shards()),
    )
    gauge(
        "ottla_share_state_bytes",
        "Approximate memory of the state of share partitions that this broker coordinates.",
        read=lambda: sum(shard.held_bytes for _, shard in runtime.active_shards()),
    )
    register_coordinator_gauges(registry, runtime, "share", OPERATIONS)
