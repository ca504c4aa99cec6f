"""Routing, retries and errors of `Cluster`, against scripted brokers."""

from __future__ import annotations

import socket
import time

import pytest

from ottla.client.admin import router as router_module
from ottla.client.admin.cluster import Cluster
from ottla.client.wire import connection as connection_module
from ottla.client.wire.broker_connections import BrokerConnections
from ottla.client.wire.connection import BrokerUnreachable
from ottla.client.wire.failure import TopicNotFound, TopicReplaced
from ottla.client.wire.model import LATEST_TIMESTAMP, NO_OFFSET, ConfigOperation, OffsetInfo, ResourceType
from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.platform.reused_memory import ReusedMemory
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.messages.fetch import AbortedTransaction, FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.protocol.registry import ApiKey

TOPIC_ID = bytes(range(16))


class Shape:
    """The cluster in responses of the scripted broker; tests change it between responses."""

    def __init__(self, broker) -> None:
        self.broker = broker
        self.leaders = [1, 1]
        self.topic_error = ErrorCode.NONE
        self.other_brokers = []
        self.controller = 1
        self.topic_id = TOPIC_ID
        broker.answers[ApiKey.METADATA] = self.metadata

    def metadata(self, version, request):
        brokers = [(1, self.broker.port), *self.other_brokers]
        topics = []
        if request.topics is None or request.topics:
            partitions = [
                MetadataResponsePartition(
                    partition_index=i, leader_id=leader, leader_epoch=5, replica_nodes=[1], isr_nodes=[1]
                )
                for i, leader in enumerate(self.leaders)
            ]
            found = self.topic_error == ErrorCode.NONE
            topics = [
                MetadataResponseTopic(
                    error_code=self.topic_error,
                    name="t",
                    topic_id=self.topic_id,
                    partitions=partitions if found else [],
                )
            ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=n, host="127.0.0.1", port=port) for n, port in brokers],
            cluster_id="cluster",
            controller_id=self.controller,
            topics=topics,
        )


@pytest.fixture
def shape(scripted):
    return Shape(scripted)


@pytest.fixture
def cluster(scripted):
    with Cluster(scripted.address, timeout_s=5.0) as cluster:
        yield cluster


def offsets_answer(offsets, error=ErrorCode.NONE):
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name="t",
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=i, offset=offset, timestamp=7, leader_epoch=5, error_code=error
                    )
                    for i, offset in offsets.items()
                ],
            )
        ]
    )


def fetch_answer(**data):
    partition = PartitionData(partition_index=0, **data)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[partition])])


def test_closed_connection_is_reported_unless_next_server_works(shape, scripted, hangs_up):
    """It may need TLS, or have reached its connection limit."""
    with Cluster(f"{hangs_up.address},{scripted.address}", client_id="t", timeout_s=60) as cluster:
        assert "t" in cluster.topics.all()
    with (
        Cluster(hangs_up.address, client_id="t", timeout_s=60) as cluster,
        pytest.raises(BrokerUnreachable, match="before its first response"),
    ):
        cluster.topics.all()
    assert len(hangs_up.requests) == 2


def test_metadata_as_values(shape, cluster):
    info = cluster.describe()
    assert (info.cluster_id, info.controller_id, [b.node_id for b in info.brokers]) == ("cluster", 1, [1])
    topic = cluster.topics.all()["t"]
    assert topic.topic_id == TOPIC_ID
    assert [(p.index, p.leader, p.leader_epoch, p.replicas, p.isr) for p in topic.partitions] == [
        (0, 1, 5, (1,), (1,)),
        (1, 1, 5, (1,), (1,)),
    ]
    assert cluster.topics.get("t") == topic


def test_find_omits_a_topic_that_does_not_exist(shape, cluster):
    assert cluster.topics.find(["t"]).keys() == {"t"}
    shape.topic_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.topics.find(["t"]) == {}


def test_asking_never_creates_a_topic(shape, cluster, scripted):
    shape.topic_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(TopicNotFound, match="topic 't' does not exist"):
        cluster.topics.get("t")
    with pytest.raises(TopicNotFound):
        cluster.records.list_offsets({("t", 0): LATEST_TIMESTAMP})
    requests = [request for key, _, request in scripted.requests if key == ApiKey.METADATA]
    assert all(not request.allow_auto_topic_creation for request in requests)


def test_a_partition_beyond_the_last(shape, cluster):
    with pytest.raises(TopicNotFound, match="has no partition 2"):
        cluster.records.fetch("t", 2, 0)


def test_offsets_come_in_the_order_asked(shape, cluster, scripted):
    scripted.answers[ApiKey.LIST_OFFSETS] = lambda version, request: offsets_answer({0: 10, 1: 11})
    found = cluster.records.list_offsets(
        {("t", 1): LATEST_TIMESTAMP, ("t", 0): LATEST_TIMESTAMP}, isolation="read_committed"
    )
    assert list(found.items()) == [(("t", 1), OffsetInfo(11, 7, 5)), (("t", 0), OffsetInfo(10, 7, 5))]
    assert scripted.requests[-1][2].isolation_level == 1


def several_offsets(*offsets):
    partition = ListOffsetsPartitionResponse(partition_index=0, old_style_offsets=list(offsets))
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])])


def test_several_offsets_are_asked_of_the_version_that_has_them(shape, cluster, scripted):
    scripted.answers[ApiKey.LIST_OFFSETS] = lambda version, request: several_offsets(3, 9, 5)
    assert cluster.records.offsets_before({("t", 0): 7}, 2) == {("t", 0): [9, 5]}
    _, version, request = scripted.requests[-1]
    (asked,) = request.topics[0].partitions
    assert (version, asked.timestamp, asked.max_num_offsets) == (0, 7, 2)


def test_offsets_before_needs_an_old_list_offsets_version(shape, cluster, scripted):
    scripted.versions[ApiKey.LIST_OFFSETS] = (1, 11)
    with pytest.raises(KafkaError, match="in versions 1 to 11, this client in 0 to 0") as raised:
        cluster.records.offsets_before({("t", 0): 7}, 2)
    assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_a_moved_leader_is_found_again(shape, cluster, scripted):
    """The first response is NOT_LEADER_OR_FOLLOWER; after a refresh the other broker gets the request."""
    other = type(scripted)()
    try:
        Shape(other).leaders = [2, 2]
        other.answers[ApiKey.LIST_OFFSETS] = lambda version, request: offsets_answer({0: 3})

        def refuse(version, request):
            shape.other_brokers = [(2, other.port)]
            shape.leaders = [2, 2]
            return offsets_answer({0: -1}, ErrorCode.NOT_LEADER_OR_FOLLOWER)

        scripted.answers[ApiKey.LIST_OFFSETS] = refuse
        assert cluster.records.list_offsets({("t", 0): LATEST_TIMESTAMP})["t", 0].offset == 3
    finally:
        other.close()
    assert not other.errors


def test_a_broken_connection_is_made_again(shape, cluster, scripted):
    answers = [None, fetch_answer(records=b"batch", high_watermark=9, last_stable_offset=8, log_start_offset=1)]
    scripted.answers[ApiKey.FETCH] = lambda version, request: answers.pop(0)
    result = cluster.records.fetch("t", 0, 5, max_bytes=1000, max_wait_ms=0)
    assert (result.records, result.high_watermark, result.last_stable_offset, result.log_start_offset) == (
        b"batch",
        9,
        8,
        1,
    )
    request = scripted.requests[-1][2]
    assert (request.session_id, request.session_epoch, request.isolation_level) == (0, -1, 0)
    assert request.topics[0].topic_id == TOPIC_ID
    assert (request.topics[0].partitions[0].fetch_offset, request.topics[0].partitions[0].partition_max_bytes) == (
        5,
        1000,
    )


def test_fetch_into_memory_is_valid_until_the_next_one(shape, cluster, scripted):
    answers = [b"first", b"second, and longer", b"third"]
    scripted.answers[ApiKey.FETCH] = lambda version, request: fetch_answer(records=answers.pop(0))
    memory = ReusedMemory()
    first = cluster.records.fetch("t", 0, 0, memory=memory).records
    assert first == b"first"
    assert cluster.records.fetch("t", 0, 0, memory=memory).records == b"second, and longer"
    assert first != b"first"
    assert cluster.records.fetch("t", 0, 0, memory=memory).records == b"third"


def test_fetch_returns_aborted_transactions(shape, cluster, scripted):
    scripted.answers[ApiKey.FETCH] = lambda version, request: fetch_answer(
        records=None, aborted_transactions=[AbortedTransaction(producer_id=4, first_offset=2)]
    )
    result = cluster.records.fetch("t", 0, 0, isolation="read_committed", max_wait_ms=0)
    assert result.records == b""
    assert [(entry.producer_id, entry.first_offset) for entry in result.aborted] == [(4, 2)]


def test_an_offset_out_of_range_is_not_tried_again(shape, cluster, scripted):
    scripted.answers[ApiKey.FETCH] = lambda version, request: fetch_answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    with pytest.raises(KafkaError, match="fetch of t-0 at offset 99: offset out of range") as caught:
        cluster.records.fetch("t", 0, 99)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert sum(key == ApiKey.FETCH for key, _, _ in scripted.requests) == 1


def test_a_fetch_by_id_takes_nothing_from_another_topic(shape, cluster, scripted):
    scripted.answers[ApiKey.FETCH] = lambda version, request: fetch_answer(records=b"theirs")
    assert cluster.records.fetch("t", 0, 0, topic_id=TOPIC_ID).records == b"theirs"
    with pytest.raises(
        TopicReplaced, match=r"'t' was deleted and created again: its id has changed from _{21}w to AAECAw"
    ):
        cluster.records.fetch("t", 0, 0, topic_id=b"\xff" * 16)


def test_recreated_topic_is_detected_by_unknown_topic_id(shape, cluster, scripted):
    """The client has an outdated topic id: UNKNOWN_TOPIC_ID triggers a metadata refresh."""
    cluster.topics.get("t")
    shape.topic_id = b"\x07" * 16
    scripted.answers[ApiKey.FETCH] = lambda version, request: fetch_answer(error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    with pytest.raises(TopicReplaced):
        cluster.records.fetch("t", 0, 0, topic_id=TOPIC_ID)
    assert [key for key, _, _ in scripted.requests].count(ApiKey.FETCH) == 1


def test_a_broker_that_knows_topics_by_name_only_is_refused(shape, cluster, scripted):
    scripted.versions[ApiKey.FETCH] = (4, 12)
    with pytest.raises(KafkaError, match="Fetch up to version 12, which has no topic ids"):
        cluster.records.fetch("t", 0, 0, topic_id=TOPIC_ID)


def test_where_an_epoch_ended(shape, cluster, scripted):
    """A moved leader is asked again; of an epoch that the broker does not know the end is none."""
    answers = [[(0, ErrorCode.NONE, 80), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)], [(1, ErrorCode.NONE, NO_OFFSET)]]

    def answer(version, request):
        asked = [partition.partition for topic in request.topics for partition in topic.partitions]
        rows = answers.pop(0)
        assert asked == [row[0] for row in rows]
        ends = [EpochEndOffset(partition=index, error_code=code, end_offset=end) for index, code, end in rows]
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=ends)])

    scripted.answers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = answer
    assert cluster.records.epoch_ends({("t", 0): 7, ("t", 1): 3}) == {("t", 0): 80, ("t", 1): NO_OFFSET}


def test_an_answer_without_the_partition_is_an_error(shape, cluster, scripted):
    scripted.answers[ApiKey.FETCH] = lambda version, request: FetchResponse()
    with pytest.raises(ProtocolError, match="omitted the partition"):
        cluster.records.fetch("t", 0, 0)


def test_a_partition_without_a_leader_times_out_with_its_name(shape, scripted, monkeypatch):
    monkeypatch.setattr(router_module, "time", VirtualTime())
    shape.leaders = [-1]
    with (
        Cluster(scripted.address, timeout_s=30) as cluster,
        pytest.raises(KafkaError, match="t-0: leader not available"),
    ):
        cluster.records.list_offsets({("t", 0): LATEST_TIMESTAMP})


def bound(taken):
    """The port of a socket that does not listen."""
    taken.bind(("127.0.0.1", 0))
    return taken.getsockname()[1]


def test_unreachable_cluster_fails_immediately():
    with (
        socket.socket() as taken,
        Cluster(f"127.0.0.1:{bound(taken)}", timeout_s=30) as cluster,
        pytest.raises(BrokerUnreachable, match="connection refused; is a broker running there"),
    ):
        cluster.topics.all()


def test_one_that_was_there_is_waited_for_from_the_first_call_on(shape, scripted, monkeypatch):
    """As in a task with ranges from a recent cluster response."""
    connect, refused = BrokerConnections.to_any, []

    def at_the_second_time(connections, known):
        if not refused:
            refused.append(known)
            raise BrokerUnreachable("connection refused")
        return connect(connections, known)

    monkeypatch.setattr(BrokerConnections, "to_any", at_the_second_time)
    with Cluster(scripted.address, timeout_s=30, recently_reachable=True) as cluster:
        assert "t" in cluster.topics.all()
    assert refused


def test_the_second_bootstrap_server_is_tried(shape, scripted):
    with Cluster(f"127.0.0.1:1,{scripted.address}", timeout_s=5) as cluster:
        assert "t" in cluster.topics.all()


def test_next_server_is_tried_when_one_accepts_and_is_silent(shape, scripted):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]},{scripted.address}"
        with Cluster(servers, timeout_s=0.5, recently_reachable=True) as cluster:
            assert "t" in cluster.topics.all()


def test_silent_host_costs_one_connect_timeout(shape, scripted, monkeypatch):
    monkeypatch.setattr(connection_module, "CONNECT_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent, socket.socket() as filling:
        filling.connect(silent.getsockname())  # Linux answers no further SYN while the queue is full
        servers = f"127.0.0.1:{silent.getsockname()[1]},{scripted.address}"
        started = time.monotonic()
        with Cluster(servers, timeout_s=60) as cluster:
            assert cluster.describe().controller_id == 1
        assert time.monotonic() - started < 30


def test_a_topic_is_created_once_and_awaited(shape, cluster, scripted):
    """Its leaders show up only in the second metadata answer after the creation."""
    shape.leaders = [-1, -1]

    def create(version, request):
        topic = request.topics[0]
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 2, -1)
        assert [(config.name, config.value) for config in topic.configs] == [("retention.ms", "1")]
        original = shape.metadata

        def later(version, request):
            answer = original(version, request)
            if request.topics:
                shape.leaders = [1, 1]
            return answer

        scripted.answers[ApiKey.METADATA] = later
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="t")])

    scripted.answers[ApiKey.CREATE_TOPICS] = create
    cluster.topics.create("t", 2, configs={"retention.ms": "1"})
    assert sum(key == ApiKey.CREATE_TOPICS for key, _, _ in scripted.requests) == 1


def test_a_refused_creation_has_the_brokers_words(shape, cluster, scripted):
    scripted.answers[ApiKey.CREATE_TOPICS] = lambda version, request: CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name="t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS, error_message="Topic 't' is there."
            )
        ]
    )
    with pytest.raises(KafkaError, match="topic 't': Topic 't' is there") as caught:
        cluster.topics.create("t")
    assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_change_is_not_sent_again_when_its_outcome_is_unknown(shape, cluster, scripted):
    scripted.answers[ApiKey.DELETE_TOPICS] = lambda version, request: None
    with pytest.raises(KafkaError, match="closed the connection"):
        cluster.topics.delete(["t"])
    assert sum(key == ApiKey.DELETE_TOPICS for key, _, _ in scripted.requests) == 1


@pytest.mark.parametrize("version", [5, 6])
def test_every_failed_deletion_is_named(shape, cluster, scripted, version):
    scripted.versions[ApiKey.DELETE_TOPICS] = (1, version)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    scripted.answers[ApiKey.DELETE_TOPICS] = lambda version, request: DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=name, error_code=code)
            for name in (request.topic_names or [topic.name for topic in request.topics])
        ]
    )
    with pytest.raises(KafkaError, match="topic 'a': unknown topic or partition; topic 'b': unknown"):
        cluster.topics.delete(["a", "b"])


def test_an_unknown_error_code_is_still_a_sentence(shape, cluster, scripted):
    scripted.answers[ApiKey.FETCH] = lambda version, request: fetch_answer(error_code=12345)
    with pytest.raises(KafkaError, match="error 12345"):
        cluster.records.fetch("t", 0, 0)


def test_configs(shape, cluster, scripted):
    scripted.answers[ApiKey.DESCRIBE_CONFIGS] = lambda version, request: DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                resource_type=2,
                resource_name="t",
                configs=[
                    DescribeConfigsResourceResult(name="b", value="2", config_source=5, documentation="the b"),
                    DescribeConfigsResourceResult(name="a", value=None, config_source=1, is_sensitive=True),
                ],
            )
        ]
    )
    entries = cluster.configs.describe(ResourceType.TOPIC, "t", ["a", "b"])
    assert [(e.name, e.value, e.source, e.is_default, e.is_sensitive) for e in entries] == [
        ("a", None, "topic", False, True),
        ("b", "2", "default", True, False),
    ]
    assert scripted.requests[-1][2].resources[0].configuration_keys == ["a", "b"]

    scripted.answers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = lambda version, request: IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                resource_type=2, resource_name="t", error_code=ErrorCode.INVALID_CONFIG, error_message="no such config"
            )
        ]
    )
    with pytest.raises(KafkaError, match="configs of topic 't': no such config"):
        cluster.configs.alter(
            ResourceType.TOPIC, "t", [("x", ConfigOperation.SET, "1"), ("y", ConfigOperation.DELETE, None)]
        )
    sent = scripted.requests[-1][2].resources[0].configs
    assert [(config.name, config.config_operation, config.value) for config in sent] == [("x", 0, "1"), ("y", 1, None)]


def test_a_broker_that_is_not_there_is_named(shape, cluster):
    with pytest.raises(KafkaError, match="broker '9' does not exist; live brokers: 1"):
        cluster.configs.describe(ResourceType.BROKER, "9")


def test_a_wrong_isolation_is_named(shape, cluster):
    with pytest.raises(KafkaError, match="not 'dirty'"):
        cluster.records.fetch("t", 0, 0, isolation="dirty")


class VirtualTime:
    """Replaces the module `time`: only sleeping takes time."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_all_steps_of_a_call_share_its_time(shape, scripted, monkeypatch):
    clock = VirtualTime()
    monkeypatch.setattr(router_module, "time", clock)
    shape.leaders = [-1]

    def create(version, request):
        code = ErrorCode.NOT_CONTROLLER if clock.now < 20 else ErrorCode.NONE
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code)])

    scripted.answers[ApiKey.CREATE_TOPICS] = create
    with Cluster(scripted.address, timeout_s=30) as cluster, pytest.raises(KafkaError, match="leader not available"):
        cluster.topics.create("t")
    assert 20 < clock.now <= 30
