"""Series of a node, its registration and its replica of the metadata log, computed at a scrape.

Raft metrics have two spellings in dashboards, `kafka_server_raft_metrics_*` and `kafka_server_raftmetrics_*`; both are
exported. Rates are those between two scrapes at least `RATE_S` apart. On ZooKeeper there are no Raft metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import ottla
from ottla.common.config.feature_levels import METADATA_LEVELS
from ottla.common.platform.clock import Clock
from ottla.common.platform.endpoint import Endpoint
from ottla.controller.driver import Controller
from ottla.metadata.image import metadata_level
from ottla.metadata.publisher import MetadataPublisher
from ottla.metrics.registry import Gauge, MetricsRegistry
from ottla.metrics.series import Collector, FamilyStart, Rate, Step, label_text
from ottla.quorum.driver import QuorumDriver
from ottla.quorum.raft_leader import LeaderState
from ottla.quorum.raft_roles import ROLE_NAMES

RATE_S = 10.0
"""Shortest time that a rate covers."""

_RAFT = "kafka_server_raft_metrics_"
_STRIMZI_RAFT = "kafka_server_raftmetrics_"
_ALIASES = {"ottla_transactional_ids": "kafka_server_transaction_coordinator_metrics_transactional_id_count"}
_OBSERVER = "observer"


def alias_series(registry: MetricsRegistry) -> Collector:
    """Collector of gauges of the registry under a second name, for dashboards."""

    def alias(name: str) -> str | None:
        if name.startswith(_RAFT):
            return _STRIMZI_RAFT + name.removeprefix(_RAFT)
        return _ALIASES.get(name)

    def collect() -> Iterator[Step]:
        for family in registry.families():
            name = alias(family.name)
            metric = None if name is None else family.series.get(())
            if name is not None and isinstance(metric, Gauge):
                yield FamilyStart(name, family.help)
                yield "", metric.current()

    return collect


class RaftSeries:
    """Collector of the metadata quorum on one node."""

    __slots__ = ("_clock", "_quorum", "_rate")

    def __init__(self, quorum: QuorumDriver, clock: Clock) -> None:
        self._quorum = quorum
        self._clock = clock
        self._rate = Rate(RATE_S, clock.monotonic(), quorum.log_end.end_offset)

    def __call__(self) -> Iterator[Step]:
        """The families, one after the other."""
        state = label_text((("current_state", self._state()),))
        for name in (f"{_STRIMZI_RAFT}current_state", f"{_RAFT}current_state_info"):
            yield FamilyStart(name, "1, with the role of this node in the metadata quorum.")
            yield state, 1
        rate = self._rate.measure(self._clock.monotonic(), self._quorum.log_end.end_offset)
        leads = isinstance(self._quorum.raft.state.role, LeaderState)
        for prefix in (_STRIMZI_RAFT, _RAFT):
            yield FamilyStart(f"{prefix}append_records_rate", "Metadata records appended by this leader, per second.")
            yield "", rate if leads else 0
            yield FamilyStart(f"{prefix}fetch_records_rate", "Metadata records fetched by this node, per second.")
            yield "", 0 if leads else rate

    def _state(self) -> str:
        state = self._quorum.raft.state
        name = ROLE_NAMES[type(state.role)]
        return _OBSERVER if name == "follower" and not state.is_voter else name


class NodeLabels(NamedTuple):
    """Values that identify a node in its series."""

    node_id: int
    rack: str | None
    cluster_id: str


def registration_series(
    node: NodeLabels, listeners: Sequence[Endpoint], controller: Controller, publisher: MetadataPublisher
) -> Collector:
    """Collector of the registration of a node; `listeners` are those of a broker, empty on a controller.

    Each broker exports itself. The active controller exports the cluster and the number of brokers.
    """
    node_id, rack, cluster_id = node

    def collect() -> Iterator[Step]:
        if listeners:
            yield FamilyStart("kafka_exporter_build_info", "1, with the version of this broker.")
            yield label_text((("version", ottla.__version__),)), 1
            host, port = listeners[0].host, str(listeners[0].port)
            yield FamilyStart("kafka_broker_info", "1, with id and address of this broker.")
            yield label_text((("address", listeners[0].address), ("id", str(node_id)))), 1
            yield FamilyStart("kminion_kafka_broker_info", "1, with id, address and rack of this broker.")
            labels = (("address", host), ("broker_id", str(node_id)), ("is_controller", str(controller.active).lower()))
            yield label_text((*labels, ("port", port), ("rack_id", rack or ""))), 1
        if controller.active:
            live = sum(not each.fenced for each in publisher.image.brokers.values())
            yield FamilyStart("kafka_brokers", "Brokers that are not fenced, from the active controller.")
            yield "", live
            yield FamilyStart("kminion_kafka_cluster_info", "1, with the cluster as its active controller sees it.")
            version = METADATA_LEVELS[metadata_level(publisher.image)].name
            labels = (("broker_count", str(live)), ("cluster_id", cluster_id), ("cluster_version", version))
            yield label_text((*labels, ("controller_id", str(node_id)))), 1

    return collect
