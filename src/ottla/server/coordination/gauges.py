"""Gauges of a coordinator's runtime; named after Kafka's metrics where Kafka has the metric."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.coordinator.runtime import TIMER, CoordinatorRuntime, CoordinatorState
from ottla.metrics.registry import MetricsRegistry


def register_coordinator_gauges(
    registry: MetricsRegistry, runtime: CoordinatorRuntime[Any], kind: str, operations: Iterable[str]
) -> None:
    """Register the gauges of one coordinator; `kind` such as "group"; `operations` are the names of its counters."""
    statistics = runtime.statistics
    gauge = registry.gauge
    kafkas, ours = f"kafka_server_{kind}_coordinator_metrics_", f"ottla_{kind}_coordinator_"
    for state in (CoordinatorState.LOADING, CoordinatorState.ACTIVE, CoordinatorState.FAILED):
        gauge(
            f"{kafkas}num_partitions",
            f"Partitions of {runtime.name} that this broker coordinates, by state.",
            {"state": state.value},
            read=lambda state=state: runtime.state_counts()[state],  # type: ignore[misc]
        )
    gauge(
        f"{kafkas}partition_load_time_max",
        "Longest load of a partition, in ms.",
        read=lambda: statistics.load_time_max_ms,
    )
    gauge(
        f"{kafkas}partition_load_time_avg",
        "Average load of a partition, in ms.",
        read=lambda: statistics.load_time_total_ms / max(1, statistics.loads),
    )
    for name in (*operations, TIMER):
        gauge(
            f"{ours}operations",
            f"Operations of the {kind} coordinator since the start, by name.",
            {"operation": name},
            read=lambda name=name: statistics.operations[name],  # type: ignore[misc]
        )
    gauge(
        f"{ours}batches_appended",
        f"Batches that the {kind} coordinator wrote since the start.",
        read=lambda: statistics.batches_appended,
    )
    gauge(
        f"{ours}records_appended",
        f"Records that the {kind} coordinator wrote since the start.",
        read=lambda: statistics.records_appended,
    )
    gauge(
        f"{ours}append_failures",
        f"Writes of the {kind} coordinator that failed since the start.",
        read=lambda: statistics.append_failures + statistics.write_timeouts,
    )
    gauge(
        f"{ours}load_failures",
        "Loads of a partition that failed since the start.",
        read=lambda: statistics.load_failures,
    )
    gauge(
        f"{ours}records_skipped",
        "Records that loads skipped since the start, because they could not be read; the log names each.",
        read=lambda: statistics.records_skipped,
    )
