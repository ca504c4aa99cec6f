"""Series of a node, its registration and its replica of the metadata log, computed at a scrape.

Raft metrics have two spellings in dashboards, `kafka_server_raft_metrics_*` and `kafka_server_raftmetrics_*`; both are
exported. Rates are those between two scrapes at least `RATE_S` apart. Latencies are those of the last one to two times
`LATENCY_S`, or since the scrape before if scrapes are rarer; NaN without any, as in Apache Kafka. A cluster on
ZooKeeper has no Raft metrics.
"""

from __future__ import annotations

import math
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
from ottla.quorum.raft_types import Durations
from ottla.replica.fetchers import ReplicaFetchers

RATE_S = 10.0
"""Shortest time that a rate covers."""
LATENCY_S = 60.0
"""Shortest time that a latency covers."""

_RAFT = "kafka_server_raft_metrics_"
_STRIMZI_RAFT = "kafka_server_raftmetrics_"
_CHANNEL = "kafka_server_raft_channel_metrics_"
_STRIMZI_CHANNEL = "kafka_server_raftchannelmetrics_"
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


class LatencyWindow:
    """Average and maximum of durations in the last one to two times `LATENCY_S`."""

    __slots__ = ("_before", "_durations", "_since_s")

    def __init__(self, durations: Durations, now_s: float) -> None:
        """`durations` is cleared at the end of each window."""
        self._durations = durations
        self._since_s = now_s
        self._before = (0, 0.0, 0.0)

    def measure(self, now_s: float) -> tuple[float, float]:
        """Average and maximum in ms; NaN without a duration."""
        newest = self._durations
        count, sum_s, max_s = self._before
        count, sum_s, max_s = count + newest.count, sum_s + newest.sum_s, max(max_s, newest.max_s)
        if now_s - self._since_s >= LATENCY_S:
            self._before = (newest.count, newest.sum_s, newest.max_s)
            newest.clear()
            self._since_s = now_s
        return (1000 * sum_s / count, 1000 * max_s) if count else (math.nan, math.nan)


class RaftSeries:
    """Collector of the metadata quorum on one node."""

    __slots__ = ("_clock", "_commits", "_elections", "_quorum", "_rate")

    def __init__(self, quorum: QuorumDriver, clock: Clock) -> None:
        self._quorum = quorum
        self._clock = clock
        now_s, statistics = clock.monotonic(), quorum.raft.state.statistics
        self._rate = Rate(RATE_S, now_s, quorum.log_end.end_offset)
        self._commits = LatencyWindow(statistics.commits, now_s)
        self._elections = LatencyWindow(statistics.elections, now_s)

    def __call__(self) -> Iterator[Step]:
        """The families, one after the other."""
        state = label_text((("current_state", self._state()),))
        for name in (f"{_STRIMZI_RAFT}current_state", f"{_RAFT}current_state_info"):
            yield FamilyStart(name, "1, with the role of this node in the metadata quorum.")
            yield state, 1
        now_s = self._clock.monotonic()
        rate = self._rate.measure(now_s, self._quorum.log_end.end_offset)
        leads = isinstance(self._quorum.raft.state.role, LeaderState)
        for prefix in (_STRIMZI_RAFT, _RAFT):
            yield FamilyStart(f"{prefix}append_records_rate", "Metadata records appended by this leader, per second.")
            yield "", rate if leads else 0
            yield FamilyStart(f"{prefix}fetch_records_rate", "Metadata records fetched by this node, per second.")
            yield "", 0 if leads else rate
        yield from self._latencies(now_s)
        yield from self._channel()

    def _latencies(self, now_s: float) -> Iterator[Step]:
        kinds = (
            ("commit", self._commits, "Time from the append of a batch by this leader to its commit, in ms."),
            ("election", self._elections, "Time from the first pre-vote of this node to a leader, in ms."),
        )
        for kind, window, text in kinds:
            average, maximum = window.measure(now_s)
            for prefix in (_STRIMZI_RAFT, _RAFT):
                yield FamilyStart(f"{prefix}{kind}_latency_avg", text)
                yield "", average
                yield FamilyStart(f"{prefix}{kind}_latency_max", text)
                yield "", maximum

    def _channel(self) -> Iterator[Step]:
        statistics = self._quorum.raft.state.statistics
        counts = (
            ("incoming_byte", statistics.response_bytes, "Bytes of responses from other replicas, without headers."),
            ("outgoing_byte", statistics.request_bytes, "Bytes of requests to other replicas, without headers."),
            ("request", statistics.requests, "Requests to other replicas of the metadata log."),
            ("response", statistics.responses, "Responses from other replicas of the metadata log."),
        )
        for name, count, text in counts:
            yield FamilyStart(f"{_STRIMZI_CHANNEL}{name}_total", text, "counter")
            yield "", count
            yield FamilyStart(f"{_CHANNEL}{name}", text)  # a gauge in Strimzi's reporter, whose names lack `_total`
            yield "", count

    def _state(self) -> str:
        state = self._quorum.raft.state
        name = ROLE_NAMES[type(state.role)]
        return _OBSERVER if name == "follower" and not state.is_voter else name


class FetchRates:
    """Rates of Fetch requests to the leaders of this broker's followers, between scrapes at least `RATE_S` apart."""

    __slots__ = ("_clock", "_fetchers", "_rates")

    def __init__(self, fetchers: ReplicaFetchers, clock: Clock) -> None:
        self._fetchers = fetchers
        self._clock = clock
        self._rates: dict[int, Rate] = {}

    def minimum(self) -> float:
        """Lowest rate of a leader, per second; 0 without leaders, as in Apache Kafka."""
        now_s = self._clock.monotonic()
        numbers = self._fetchers.request_numbers()
        self._rates = {
            leader_id: self._rates.get(leader_id) or Rate(RATE_S, now_s, number)
            for leader_id, number in numbers.items()
        }
        return min((rate.measure(now_s, numbers[leader_id]) for leader_id, rate in self._rates.items()), default=0.0)


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
