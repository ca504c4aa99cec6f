"""Series that a scrape computes, from a broker without sockets and from states that the test creates."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import ottla
from ottla.common.config.feature_levels import METADATA_LEVELS, METADATA_VERSION_LEVEL
from ottla.common.platform.endpoint import Endpoint
from ottla.metadata.image import MetadataImage
from ottla.metrics.exposition import LINES_PER_SLICE, render
from ottla.metrics.registry import LATENCY_BOUNDS_MS, MetricsRegistry
from ottla.metrics.series import Collector
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.server.coordination import share_series
from ottla.server.requests.statistics import BrokerStatistics
from ottla.server.wiring import group_series, partition_series
from ottla.server.wiring.group_series import GroupSeries
from ottla.server.wiring.node_series import (
    LATENCY_S,
    RATE_S,
    FetchRates,
    NodeLabels,
    RaftSeries,
    alias_series,
    registration_series,
)
from ottla.server.wiring.partition_series import PartitionSeries
from ottla.server.wiring.request_series import WINDOW_S, RequestSeries, quantile
from ottla.share.settings import EARLIEST, ShareSettings

from .harness import Connection, Server, fetch_request
from .share_groups import MemoryPersister, acquired, enable_share_groups, share_fetch
from .virtual_time import VirtualTime

FETCH = 1


def scrape(*collectors: Collector) -> dict[str, float]:
    """Values by series, as in the exposition."""
    text = b"".join(render(MetricsRegistry(), collectors)).decode()
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def partitions_of(server: Server) -> PartitionSeries:
    return PartitionSeries(server.broker.parts.replicas, lambda: server.broker.image, 1)


def replica(
    topic: str = "t", index: int = 0, *, isr: int = 3, leader: int = 0, leads: bool = True, segments: int = 1
) -> Any:
    """A replica of a partition with three replicas, and min.insync.replicas 2."""
    config = SimpleNamespace(min_insync_replicas=2)
    log = SimpleNamespace(config=config, size_bytes=100, log_start_offset=2, log_end_offset=9, segments=[0] * segments)
    state = SimpleNamespace(isr=tuple(range(isr)), replicas=(0, 1, 2), leader_id=leader)
    return SimpleNamespace(topic=topic, index=index, log=log, state=state, is_leader=leads, high_watermark=7)


class Replicas:
    """Stands for a replica manager with these partitions."""

    def __init__(self, *held: Any) -> None:
        self.held = held

    def partitions(self) -> Iterator[Any]:
        return iter(self.held)

    def partition_count(self) -> int:
        return len(self.held)


def series_of(*held: Any) -> PartitionSeries:
    replicas: Any = Replicas(*held)
    return PartitionSeries(replicas, MetadataImage, 1)


class TestPartitions:
    def test_each_partition_of_a_broker_has_its_series(self, server: Server, client: Connection) -> None:
        client.create_topic("t", 2)
        client.produce("t", b"a", b"b", partition=1)
        found = scrape(partitions_of(server))
        first, second = '{partition="0",topic="t"}', '{partition="1",topic="t"}'
        assert found["kafka_log_log_logendoffset" + second] == 2
        assert found["kafka_log_log_logstartoffset" + second] == 0
        assert found["kafka_log_log_size" + second] > found["kafka_log_log_size" + first] == 0
        assert found["kafka_cluster_partition_replicascount" + first] == 1
        assert found["kafka_cluster_partition_atminisr" + first] == 1
        assert found["kafka_topic_partition_current_offset" + second] == 2
        assert found["kafka_topic_partition_leader" + first] == 1
        assert found["kafka_topic_partition_leader_is_preferred" + first] == 1
        assert found['kafka_topic_partitions{topic="t"}'] == 2
        assert found['kminion_kafka_topic_high_water_mark_sum{topic_name="t"}'] == 2
        assert found['kminion_kafka_topic_low_water_mark_sum{topic_name="t"}'] == 0
        assert found['kminion_kafka_topic_partition_high_water_mark{partition_id="1",topic_name="t"}'] == 2
        assert found['kminion_kafka_topic_partition_low_water_mark{partition_id="1",topic_name="t"}'] == 0
        info = 'cleanup_policy="delete",partition_count="2",replication_factor="1",topic_name="t"'
        assert found[f"kminion_kafka_topic_info{{{info}}}"] == 1
        size = found["kafka_log_log_size" + second]
        assert found['kminion_kafka_broker_log_dir_size_total_bytes{broker_id="1"}'] == size
        assert found["ottla_metrics_partitions_omitted"] == 0

    def test_isr_is_compared_with_replicas_and_minimum(self) -> None:
        found = scrape(series_of(replica("a", isr=3), replica("b", isr=2), replica("c", isr=1, leader=1)))
        names = ("underreplicated", "underminisr", "atminisr", "insyncreplicascount")
        values = [
            [found[f'kafka_cluster_partition_{name}{{partition="0",topic="{topic}"}}'] for name in names]
            for topic in "abc"
        ]
        assert values == [[0, 0, 0, 3], [1, 0, 1, 2], [1, 1, 0, 1]]
        assert found['kafka_topic_partition_leader_is_preferred{partition="0",topic="c"}'] == 0
        assert found['kafka_topic_partition_under_replicated_partition{partition="0",topic="c"}'] == 1

    def test_follower_has_a_log_but_nothing_of_the_leader(self) -> None:
        found = scrape(series_of(replica(leads=False, isr=1)))
        assert {name: value for name, value in found.items() if '{partition="0",topic="t"}' in name and value} == {
            'kafka_log_log_size{partition="0",topic="t"}': 100,
            'kafka_log_log_logstartoffset{partition="0",topic="t"}': 2,
            'kafka_log_log_logendoffset{partition="0",topic="t"}': 9,
        }
        assert not any(name.startswith(("kafka_topic_", "kminion_kafka_topic_partition")) for name in found)

    def test_partitions_above_the_bound_are_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(partition_series, "MAX_PARTITIONS", 2)
        found = scrape(series_of(*(replica(index=number) for number in range(5))))
        assert sum(name.startswith("kafka_log_log_size") for name in found) == 2
        assert found["ottla_metrics_partitions_omitted"] == 3

    @pytest.mark.parametrize("leads", [True, False])
    def test_scrape_of_many_partitions_is_divided_into_short_steps(self, leads: bool) -> None:
        count = partition_series.MAX_PARTITIONS
        slices = render(MetricsRegistry(), [series_of(*(replica(index=each, leads=leads) for each in range(count)))])
        calls = 0

        def count_call(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        most = 0
        while True:
            calls = 0
            sys.setprofile(count_call)
            try:
                data = next(slices, None)
            finally:
                sys.setprofile(None)
            if data is None:
                break
            most = max(most, calls)
        assert most < 20 * LINES_PER_SLICE

    def test_scrape_of_many_segments_has_more_steps(self) -> None:
        few, many = (sum(1 for _ in series_of(replica(segments=count))()) for count in (1, 10_000))
        assert many - few == 10_000 // partition_series.STEP_SEGMENTS


def commit(client: Connection, group: str, topic: str, offsets: dict[int, int]) -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index, offset in offsets.items()
    ]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)])
    (answer,) = client.ask(request, 8).topics
    assert {each.error_code for each in answer.partitions} == {0}


class TestGroups:
    @pytest.fixture
    def groups(self, make_server: Callable[..., Server]) -> tuple[Server, Connection]:
        server = make_server(offsets_topic_num_partitions="2")
        client = server.connect()
        client.create_topic("t", 2)
        client.produce("t", b"a", b"b", b"c")
        client.produce("t", b"a", b"b", partition=1)
        client.coordinate("g")
        commit(client, 'the "g"', "t", {0: 1, 1: 2})
        return server, client

    @staticmethod
    def series(server: Server, replicas: Any = None) -> GroupSeries:
        parts = server.broker.parts
        return GroupSeries(parts.groups.runtime, replicas or parts.replicas, 1)

    def test_lag_is_that_of_the_committed_offset(self, groups: tuple[Server, Connection]) -> None:
        found = scrape(self.series(groups[0]))
        group = 'consumergroup="the \\"g\\""'
        assert found[f'kafka_consumergroup_current_offset{{{group},partition="0",topic="t"}}'] == 1
        assert found[f'kafka_consumergroup_lag{{{group},partition="0",topic="t"}}'] == 2
        assert found[f'kafka_consumergroup_lag{{{group},partition="1",topic="t"}}'] == 0
        assert found[f'kafka_consumergroup_lag_sum{{{group},topic="t"}}'] == 2
        assert found[f'kafka_consumergroup_current_offset_sum{{{group},topic="t"}}'] == 3
        assert found[f"kafka_consumergroup_members{{{group}}}"] == 0
        group = 'group_id="the \\"g\\""'
        assert found[f'kminion_kafka_consumer_group_topic_lag{{{group},topic_name="t"}}'] == 2
        assert found[f'kminion_kafka_consumer_group_topic_offset_sum{{{group},topic_name="t"}}'] == 3
        assert found[f"kminion_kafka_consumer_group_members{{{group}}}"] == 0
        assert found[f'kminion_kafka_consumer_group_info{{coordinator_id="1",{group},state="Empty"}}'] == 0
        partition = f'{{{group},partition_id="0",topic_name="t"}}'
        assert found[f"kminion_kafka_consumer_group_topic_partition_lag{partition}"] == 2

    def test_lag_without_a_local_replica_is_absent(self, groups: tuple[Server, Connection]) -> None:
        server, client = groups
        commit(client, "h", "t", {0: 1})
        client.create_topic("elsewhere")
        commit(client, "h", "elsewhere", {0: 0})
        replicas: Any = SimpleNamespace(find=self._find(server, "elsewhere"))
        found = scrape(self.series(server, replicas))
        topics = {name for name in found if name.startswith("kafka_consumergroup_lag_sum{") and '"h"' in name}
        assert topics == {'kafka_consumergroup_lag_sum{consumergroup="h",topic="t"}'}
        assert 'kafka_consumergroup_lag{consumergroup="h",partition="0",topic="elsewhere"}' not in found
        offset = 'kafka_consumergroup_current_offset_sum{consumergroup="h",topic="elsewhere"}'
        assert found[offset] == 0
        assert found["ottla_consumergroup_partitions_without_lag"] == 1

    @staticmethod
    def _find(server: Server, absent: str) -> Callable[[str, int], object]:
        replicas = server.broker.parts.replicas
        return lambda topic, index: replicas.find("no such topic" if topic == absent else topic, index)

    def test_offset_ahead_of_the_log_has_no_lag(self, groups: tuple[Server, Connection]) -> None:
        server, client = groups
        commit(client, "ahead", "t", {0: 1000})
        found = scrape(self.series(server))
        assert found['kafka_consumergroup_lag{consumergroup="ahead",partition="0",topic="t"}'] == 0

    def test_offsets_and_groups_above_the_bounds_are_counted(
        self, groups: tuple[Server, Connection], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server, client = groups
        commit(client, "h", "t", {0: 1})
        monkeypatch.setattr(group_series, "MAX_OFFSETS", 1)
        found = scrape(self.series(server))
        assert sum(name.startswith("kafka_consumergroup_current_offset{") for name in found) == 1
        assert found["ottla_metrics_offsets_omitted"] == 2
        assert found["ottla_metrics_groups_omitted"] == 0
        monkeypatch.setattr(group_series, "MAX_GROUPS", 1)
        found = scrape(self.series(server))
        assert sum(name.startswith("kafka_consumergroup_members{") for name in found) == 1
        assert found["ottla_metrics_groups_omitted"] == 1

    def test_commits_during_a_scrape_do_not_disturb_it(self, groups: tuple[Server, Connection]) -> None:
        server, client = groups
        steps = 0
        for _ in self.series(server)():
            steps += 1
            commit(client, f"new {steps}", "t", {0: steps})
            commit(client, 'the "g"', "t", {0: steps})
        assert steps > 10


class TestSharePartitions:
    def test_share_partitions_have_series_once_they_are_read(
        self, server: Server, client: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        collect = server.broker.contexts.share_partitions.collect
        topic = client.create_topic("t", 2)
        client.produce("t", b"a", b"b", b"c")
        enable_share_groups(server, MemoryPersister())
        assert scrape(collect) == {}
        duration_ms = 20
        monkeypatch.setattr(
            "ottla.server.handlers.share.share_reading.settings_of",
            lambda context, group_id: ShareSettings(lock_duration_ms=duration_ms, auto_offset_reset=EARLIEST),
        )
        client.ask(share_fetch((topic, 0), epoch=0), 2)
        duration_ms = 60_000
        other = server.connect()
        assert acquired(other.ask(share_fetch((topic, 0), epoch=0, member="other"), 2)) == {0: [(0, 2, 2)]}
        labels = '{group="group",partition="0",topic="t"}'
        prefix = "kafka_server_sharepartitionmetrics_"
        assert scrape(collect) == {
            f"{prefix}inflightmessagecount{labels}": 3,
            f"{prefix}inflightbatchcount{labels}": 1,
            f"{prefix}acquisitionlocktimeout_total{labels}": 3,
            "ottla_metrics_share_partitions_omitted": 0,
        }
        assert server.registry.histogram("kafka_server_sharegroupmetrics_partitionloadtimems", "").total == 1
        monkeypatch.setattr(share_series, "MAX_SHARE_PARTITIONS", 0)
        assert scrape(collect) == {"ottla_metrics_share_partitions_omitted": 1}


class TestRequestTimes:
    def test_quantile_is_interpolated_in_its_bucket(self) -> None:
        counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        assert quantile(counts, 0.5) == 0
        counts[LATENCY_BOUNDS_MS.index(10)] = 4
        assert [quantile(counts, share) for share in (0.25, 0.5, 1)] == [6.25, 7.5, 10]
        counts[-1] = 4
        assert quantile(counts, 0.99) == LATENCY_BOUNDS_MS[-1]

    def test_phases_divide_the_total(self) -> None:
        statistics = BrokerStatistics(MetricsRegistry())
        api = statistics.add_api(FETCH, "Fetch")
        statistics.measure_phases()
        assert api.parked is not None
        api.latency_ms.observe(4)
        for histogram, value in ((api.parked.local, 1), (api.parked.total, 300), (api.latency_ms, 300)):
            histogram.observe(value)
        found = scrape(RequestSeries(statistics, VirtualTime()))
        name = "kafka_network_requestmetrics_{}timems{}"
        sums = [found[name.format(phase, '_sum{request="Fetch"}')] for phase in ("total", "local", "remote")]
        assert sums == [304, 5, 299]
        counts = [found[name.format(phase, '_count{request="Fetch"}')] for phase in ("total", "local", "remote")]
        assert counts == [2, 2, 2]
        highest = [
            found[name.format(phase, '{quantile="0.999",request="Fetch"}')] for phase in ("total", "local", "remote")
        ]
        assert 200 < highest[0] <= 500
        assert 2 < highest[1] <= 5
        assert 200 < highest[2] <= 500

    def test_quantiles_are_those_of_the_last_minutes(self) -> None:
        time, statistics = VirtualTime(), BrokerStatistics(MetricsRegistry())
        api = statistics.add_api(FETCH, "Fetch")
        series = RequestSeries(statistics, time)
        median = 'kafka_network_requestmetrics_totaltimems{quantile="0.50",request="Fetch"}'
        assert median not in scrape(series)
        api.latency_ms.observe(400)
        assert scrape(series)[median] > 200
        time.now += WINDOW_S
        assert scrape(series)[median] > 200
        for _ in range(2):
            time.now += WINDOW_S
            found = scrape(series)
        assert median not in found
        assert found['kafka_network_requestmetrics_totaltimems_count{request="Fetch"}'] == 1
        api.latency_ms.observe(1)
        assert scrape(series)[median] <= 1

    def test_dispatcher_measures_phases_of_parked_requests(self, server: Server, client: Connection) -> None:
        client.create_topic("t")
        server.broker.parts.statistics.measure_phases()
        assert not client.send(fetch_request(("t", 0, 0), max_wait_ms=20), 12)
        assert isinstance(client.answer(), FetchResponse)
        api = server.broker.parts.statistics.apis[FETCH]
        assert api.parked is not None
        assert (api.parked.local.total, api.parked.total.total, api.latency_ms.total) == (1, 1, 1)
        assert api.parked.total.sum >= max(20, api.parked.local.sum)


class TestNode:
    def test_raft_has_both_spellings_state_and_rates(self, server: Server, client: Connection) -> None:
        time = VirtualTime()
        quorum = server.broker.parts.control.metadata.quorum
        assert quorum is not None
        raft = RaftSeries(quorum, time)
        client.create_topic("t", 4)
        time.now += RATE_S
        found = scrape(raft, alias_series(server.registry))
        assert found["kafka_server_raftmetrics_current_leader"] == 1
        assert found['kafka_server_raftmetrics_current_state{current_state="leader"}'] == 1
        assert found['kafka_server_raft_metrics_current_state_info{current_state="leader"}'] == 1
        assert found["kafka_server_raftmetrics_append_records_rate"] >= 4 / RATE_S
        assert found["kafka_server_raft_metrics_fetch_records_rate"] == 0
        assert found["kafka_server_transaction_coordinator_metrics_transactional_id_count"] == 0

    def test_raft_latencies_are_those_of_the_last_minutes(self, server: Server, client: Connection) -> None:
        time = VirtualTime()
        quorum = server.broker.parts.control.metadata.quorum
        assert quorum is not None
        statistics = quorum.raft.state.statistics
        statistics.elections.clear()
        raft = RaftSeries(quorum, time)
        average, maximum = (f"kafka_server_raft_metrics_election_latency_{kind}" for kind in ("avg", "max"))
        assert math.isnan(scrape(raft)[average])
        statistics.elections.add(0.1)
        statistics.elections.add(0.3)
        found = scrape(raft)
        assert (found[average], found[maximum]) == (200, 300)
        time.now += LATENCY_S
        assert scrape(raft)["kafka_server_raftmetrics_election_latency_max"] == 300
        time.now += LATENCY_S
        assert scrape(raft)[maximum] == 300
        assert math.isnan(scrape(raft)[maximum])
        client.create_topic("t")
        assert scrape(raft)["kafka_server_raft_metrics_commit_latency_max"] >= 0

    def test_raft_channel_has_the_counts_in_both_spellings(self, server: Server) -> None:
        quorum = server.broker.parts.control.metadata.quorum
        assert quorum is not None
        statistics = quorum.raft.state.statistics
        statistics.requests, statistics.responses = 7, 6
        statistics.request_bytes, statistics.response_bytes = 70, 60
        found = scrape(RaftSeries(quorum, VirtualTime()))
        names = ("incoming_byte", "outgoing_byte", "request", "response")
        for family in ("kafka_server_raftchannelmetrics_{}_total", "kafka_server_raft_channel_metrics_{}"):
            assert [found[family.format(name)] for name in names] == [60, 70, 7, 6]

    def test_minimum_fetch_rate_is_that_of_the_slowest_leader(self) -> None:
        time, numbers = VirtualTime(), {1: 5, 2: 5}
        fetchers: Any = SimpleNamespace(request_numbers=lambda: numbers)
        rates = FetchRates(fetchers, time)
        assert rates.minimum() == 0
        time.now += RATE_S
        numbers |= {1: 5 + 3 * int(RATE_S), 2: 5 + 2 * int(RATE_S)}
        assert rates.minimum() == 2
        del numbers[2]
        assert rates.minimum() == 3
        numbers.clear()
        assert rates.minimum() == 0

    def test_broker_exports_its_registration(self, server: Server) -> None:
        parts = server.broker.parts
        listeners = [Endpoint("PLAINTEXT", "PLAINTEXT", "broker.example.org", 9092)]
        node = NodeLabels(1, "r", "c")
        found = scrape(registration_series(node, listeners, parts.control.controller, parts.publisher))
        version = METADATA_LEVELS[METADATA_VERSION_LEVEL].name
        cluster = f'broker_count="1",cluster_id="c",cluster_version="{version}",controller_id="1"'
        assert found == {
            f'kafka_exporter_build_info{{version="{ottla.__version__}"}}': 1,
            f"kminion_kafka_cluster_info{{{cluster}}}": 1,
            'kafka_broker_info{address="broker.example.org:9092",id="1"}': 1,
            'kminion_kafka_broker_info{address="broker.example.org",broker_id="1",is_controller="true",'
            'port="9092",rack_id="r"}': 1,
            "kafka_brokers": 1,
        }

    def test_inactive_controller_exports_no_number_of_brokers(self, server: Server) -> None:
        inactive: Any = SimpleNamespace(active=False)
        node = NodeLabels(1, None, "c")
        assert scrape(registration_series(node, [], inactive, server.broker.parts.publisher)) == {}
