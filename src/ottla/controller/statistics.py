"""Counters of an active controller, with the metric names of Kafka's dashboards."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.metadata.delta import NO_LEADER_CHANGE
from ottla.metadata.image import NO_LEADER, RECOVERING
from ottla.metadata.records import ApiMessageAndVersion
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.messages.metadata_records import PartitionChangeRecord

_CONTROLLER = "kafka_controller_kafkacontroller_"
_STATS = "kafka_controller_controllerstats_"


class ControllerStatistics:
    """Elections, controller terms and missed heartbeats since the start of this process."""

    __slots__ = ("leader_elections", "new_active_controllers", "timed_out_heartbeats", "unclean_elections")

    def __init__(self, registry: MetricsRegistry) -> None:
        self.new_active_controllers = registry.counter(
            f"{_CONTROLLER}newactivecontrollers_total", "Number of times this node became the active controller."
        )
        self.timed_out_heartbeats = registry.counter(
            f"{_CONTROLLER}timedoutbrokerheartbeat_total", "Brokers that were fenced after missed heartbeats."
        )
        self.leader_elections = registry.counter(
            f"{_STATS}leaderelections_total", "Partition leaders elected by this controller."
        )
        self.unclean_elections = registry.counter(
            f"{_STATS}uncleanleaderelections_total", "Elected leaders that may lack committed records."
        )

    def decided(self, records: Sequence[ApiMessageAndVersion]) -> None:
        """Count the elections in one decision's records."""
        for record in records:
            change = record.message
            if isinstance(change, PartitionChangeRecord) and change.leader not in (NO_LEADER_CHANGE, NO_LEADER):
                self.leader_elections.value += 1
                self.unclean_elections.value += change.leader_recovery_state == RECOVERING
