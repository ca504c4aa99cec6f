"""Gauges of the group coordinator's state; named after Kafka's metrics.

Groups are counted by type and state in one pass, which serves all gauges of a scrape.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.common.platform.clock import Clock
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.metrics.registry import MetricsRegistry
from ottla.server.coordination.gauges import register_coordinator_gauges

if TYPE_CHECKING:
    from ottla.coordinator.group.shard import GroupCoordinatorShard

TALLY_LIFETIME_S = 1.0
"""Scrapes and their gauges within this time share one pass over the groups."""

CLASSIC_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
CONSUMER_STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
SHARE_STATES = ("Empty", "Stable", "Dead")
CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
OPERATIONS = (
    "classic-group-join",
    "classic-group-sync",
    "classic-group-heartbeat",
    "classic-group-leave",
    "describe-groups",
    "consumer-group-heartbeat",
    "consumer-group-describe",
    "delete-groups",
    "commit-offset",
    "txn-commit-offset",
    "fetch-offsets",
    "delete-offsets",
    "list-groups",
    "on-partition-deleted",
    "share-group-heartbeat",
    "share-group-describe",
    "share-group-offsets-alter",
    "initiate-delete-share-group-offsets",
    "complete-delete-share-group-offsets",
    "describe-share-group-offsets",
    "delete-share-groups",
    "initialize-share-group-state",
    "share-group-topics-deleted",
    "write-txn-marker",
)
"""Names by which the runtime counts operations, timers excluded. The gauges exist before the coordinator is loaded."""

_MANAGER = "kafka_coordinator_group_groupmetadatamanager_"
_METRICS = "kafka_server_group_coordinator_metrics_"


class _Tally:
    """Groups by (type, state) and offsets, at most TALLY_LIFETIME_S old."""

    __slots__ = ("_clock", "_counted_s", "_groups", "_offsets", "_runtime")

    def __init__(self, runtime: CoordinatorRuntime[GroupCoordinatorShard], clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock
        self._counted_s: float | None = None
        self._groups: Counter[tuple[str, str]] = Counter()
        self._offsets = 0

    def _refresh(self) -> None:
        now_s = self._clock.monotonic()
        if self._counted_s is not None and now_s - self._counted_s < TALLY_LIFETIME_S:
            return
        self._counted_s = now_s
        shards = [shard for _, shard in self._runtime.active_shards()]
        self._groups = Counter(
            (group.type.value, group.state_name()) for shard in shards for group in shard.context.groups.groups()
        )
        self._offsets = sum(len(shard.offsets) for shard in shards)

    def groups(self, kind: str | None = None, state: str | None = None) -> int:
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
    """Register the gauges of one broker's group coordinator."""
    tally = _Tally(runtime, clock)
    gauge = registry.gauge
    gauge(f"{_MANAGER}numgroups", "Groups of every type.", read=tally.groups)
    gauge(f"{_MANAGER}numoffsets", "Committed offsets.", read=tally.offsets)
    for state in CLASSIC_STATES:
        gauge(
            f"{_MANAGER}numgroups{state.lower()}",
            f"Classic groups that are {state}.",
            read=lambda state=state: tally.groups(CLASSIC, state),  # type: ignore[misc]
        )
    for kind in (CLASSIC, CONSUMER, SHARE):
        gauge(
            f"{_METRICS}group_count",
            "Groups by protocol.",
            {"protocol": kind},
            read=lambda kind=kind: tally.groups(kind),  # type: ignore[misc]
        )
    for state in CONSUMER_STATES:
        gauge(
            f"{_METRICS}consumer_group_count",
            "Groups of the consumer protocol by state.",
            {"state": state.lower()},
            read=lambda state=state: tally.groups(CONSUMER, state),  # type: ignore[misc]
        )
    for state in SHARE_STATES:
        gauge(
            f"{_METRICS}share_group_count",
            "Share groups by state.",
            {"state": state.lower()},
            read=lambda state=state: tally.groups(SHARE, state),  # type: ignore[misc]
        )
    register_coordinator_gauges(registry, runtime, "group", OPERATIONS)
