"""What the group coordinator shows of its state; names as on Kafka's dashboards.

Groups are counted by type and state in one pass over them, which serves all gauges of a scrape.
"""

from __future__ import annotations

from collections import Counter

from ottla.common.clock import Clock
from ottla.coordinator.group.group import GroupType
from ottla.coordinator.group.operations import NAMES
from ottla.coordinator.group.shard import GroupCoordinatorShard
from ottla.coordinator.runtime import TIMER, CoordinatorRuntime, CoordinatorState
from ottla.metrics.registry import MetricsRegistry

TALLY_LIFETIME_S = 1.0
"""Scrapes and their gauges within this time share one pass over the groups."""

CLASSIC_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
CONSUMER_STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")

_MANAGER = "kafka_coordinator_group_groupmetadatamanager_"
_METRICS = "kafka_server_group_coordinator_metrics_"


class _Tally:
    """Groups by (type, state) and offsets, at most TALLY_LIFETIME_S old."""

    __slots__ = ("_clock", "_counted_s", "_groups", "_offsets", "_runtime")

    def __init__(self, runtime: CoordinatorRuntime[GroupCoordinatorShard], clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock
        self._counted_s: float | None = None
        self._groups: Counter[tuple[GroupType, str]] = Counter()
        self._offsets = 0

    def _refresh(self) -> None:
        now_s = self._clock.monotonic()
        if self._counted_s is not None and now_s - self._counted_s < TALLY_LIFETIME_S:
            return
        self._counted_s = now_s
        shards = [shard for _, shard in self._runtime.active_shards()]
        self._groups = Counter(
            (group.type, group.state_name()) for shard in shards for group in shard.context.groups.groups()
        )
        self._offsets = sum(len(shard.offsets) for shard in shards)

    def groups(self, kind: GroupType | None = None, state: str | None = None) -> int:
        """Groups of a type and in a state; None: any."""
        self._refresh()
        return sum(
            count
            for (group_kind, group_state), count in self._groups.items()
            if kind in (None, group_kind) and state in (None, group_state)
        )

    def offsets(self) -> int:
        """Committed offsets, of all groups."""
        self._refresh()
        return self._offsets


def register_group_gauges(
    registry: MetricsRegistry, runtime: CoordinatorRuntime[GroupCoordinatorShard], clock: Clock
) -> None:
    """Make the gauges of one broker's group coordinator."""
    tally = _Tally(runtime, clock)
    gauge = registry.gauge
    gauge(f"{_MANAGER}numgroups", "Groups of every type.", read=tally.groups)
    gauge(f"{_MANAGER}numoffsets", "Committed offsets.", read=tally.offsets)
    for state in CLASSIC_STATES:
        gauge(
            f"{_MANAGER}numgroups{state.lower()}",
            f"Classic groups that are {state}.",
            read=lambda state=state: tally.groups(GroupType.CLASSIC, state),  # type: ignore[misc]
        )
    for kind in GroupType:
        gauge(
            f"{_METRICS}group_count",
            "Groups by protocol.",
            {"protocol": kind.value},
            read=lambda kind=kind: tally.groups(kind),  # type: ignore[misc]
        )
    for state in CONSUMER_STATES:
        gauge(
            f"{_METRICS}consumer_group_count",
            "Groups of the consumer protocol by state.",
            {"state": state.lower()},
            read=lambda state=state: tally.groups(GroupType.CONSUMER, state),  # type: ignore[misc]
        )
    for partition_state in (CoordinatorState.LOADING, CoordinatorState.ACTIVE, CoordinatorState.FAILED):
        gauge(
            f"{_METRICS}num_partitions",
            "Partitions of __consumer_offsets that this broker coordinates, by state.",
            {"state": partition_state.value},
            read=lambda state=partition_state: runtime.state_counts()[state],  # type: ignore[misc]
        )
    _register_runtime_gauges(registry, runtime)


def _register_runtime_gauges(registry: MetricsRegistry, runtime: CoordinatorRuntime[GroupCoordinatorShard]) -> None:
    statistics = runtime.statistics
    gauge = registry.gauge
    gauge(
        f"{_METRICS}partition_load_time_max",
        "Longest load of a partition, in ms.",
        read=lambda: statistics.load_time_max_ms,
    )
    gauge(
        f"{_METRICS}partition_load_time_avg",
        "Average load of a partition, in ms.",
        read=lambda: statistics.load_time_total_ms / max(1, statistics.loads),
    )
    for name in (*NAMES, TIMER):
        gauge(
            "ottla_group_coordinator_operations",
            "Operations on groups since the start, by name.",
            {"operation": name},
            read=lambda name=name: statistics.operations[name],  # type: ignore[misc]
        )
    gauge(
        "ottla_group_coordinator_batches_appended",
        "Batches that the group coordinator wrote since the start.",
        read=lambda: statistics.batches_appended,
    )
    gauge(
        "ottla_group_coordinator_records_appended",
        "Records that the group coordinator wrote since the start.",
        read=lambda: statistics.records_appended,
    )
    gauge(
        "ottla_group_coordinator_append_failures",
        "Writes of the group coordinator that failed since the start.",
        read=lambda: statistics.append_failures + statistics.write_timeouts,
    )
    gauge(
        "ottla_group_coordinator_load_failures",
        "Loads of a partition that failed since the start.",
        read=lambda: statistics.load_failures,
    )
