"""Metadata, DescribeCluster, DescribeTopicPartitions, FindCoordinator, InitProducerId, DescribeLogDirs."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from ottla.server.metadata.topic_creation import MAX_ON_DEMAND

from .harness import Connection, Server

NOT_ASKED = -(2**31)


def by_name(*names: str, create: bool = False, **fields: bool) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create, **fields)


@pytest.mark.parametrize("version", range(14))
def test_every_version_describes_the_cluster(server: Server, client: Connection, version: int) -> None:
    topic_id = client.create_topic("t", 2)
    request = by_name("t") if version >= 4 else MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    response = client.ask(request, version)
    assert [(broker.node_id, broker.host, broker.port) for broker in response.brokers] == [(1, "127.0.0.1", 9092)]
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert topic.topic_id == (topic_id if version >= 10 else bytes(16))
    assert [(part.partition_index, part.leader_id, part.isr_nodes) for part in topic.partitions] == [
        (0, 1, [1]),
        (1, 1, [1]),
    ]
    assert topic.partitions[0].leader_epoch == (0 if version >= 7 else -1)
    if version >= 2:
        assert response.cluster_id == server.broker.cluster_id
        assert response.controller_id == 1


def test_all_topics_and_none(client: Connection) -> None:
    client.create_topic("a")
    client.create_topic("b")
    assert [topic.name for topic in client.ask(MetadataRequest(topics=None), 9).topics] == ["a", "b"]
    assert [topic.name for topic in client.ask(MetadataRequest(topics=[]), 0).topics] == ["a", "b"]
    assert client.ask(by_name(), 9).topics == []


def test_internal_topics_are_not_auto_created(client: Connection) -> None:
    for name in ("__consumer_offsets", "__transaction_state", "__cluster_metadata"):
        (topic,) = client.ask(by_name(name, create=True), 9).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.ask(MetadataRequest(topics=None), 9).topics == []


def test_a_topic_that_is_named_twice_is_described_once(client: Connection) -> None:
    client.create_topic("t")
    names = [topic.name for topic in client.ask(by_name("t", "nope", "t", "nope"), 9).topics]
    assert names == ["t", "nope"]


def test_half_a_producer_id_is_refused(client: Connection) -> None:
    for producer_id, epoch in ((5, -1), (-1, 5)):
        request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
        answer = client.ask(request, 4)
        assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


def test_by_id(client: Connection) -> None:
    topic_id = client.create_topic("t")
    for wanted, code in ((topic_id, 0), (b"\x05" * 16, ErrorCode.UNKNOWN_TOPIC_ID)):
        asked = MetadataRequestTopic(topic_id=wanted, name=None)
        (topic,) = client.ask(MetadataRequest(topics=[asked], allow_auto_topic_creation=True), 12).topics
        assert (topic.error_code, topic.topic_id) == (code, wanted)


def created(client: Connection, name: str) -> MetadataResponseTopic:
    """The description of the topic once it exists; the request creates it."""
    (topic,) = client.ask(by_name(name, create=True), 12).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = client.server.broker.contexts.topics
    client.server.run_until(lambda: name not in topics.on_demand)
    (topic,) = client.ask(by_name(name), 12).topics
    assert topic.error_code == 0
    return topic


def test_topics_are_created_on_demand_and_unknown_until_then(client: Connection) -> None:
    (topic,) = client.ask(by_name("fresh", create=True), 12).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    client.server.run_until(lambda: not client.server.broker.contexts.topics.on_demand)
    (topic,) = client.ask(by_name("fresh", create=True), 12).topics
    assert (len(topic.partitions), topic.partitions[0].leader_id) == (1, 1)
    assert client.produce("fresh", b"a").error_code == 0
    codes = {t.name: t.error_code for t in client.ask(by_name("x y", "fresh", "more", create=True), 12).topics}
    assert codes == {
        "x y": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "fresh": 0,
        "more": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_deleted_topic_is_unknown_before_auto_creation(client: Connection) -> None:
    before = created(client, "t").topic_id
    response = client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    assert response.responses[0].error_code == 0
    assert created(client, "t").topic_id != before


def test_refused_auto_creation_is_logged_and_retried(client: Connection, caplog: pytest.LogCaptureFixture) -> None:
    created(client, "a.b")
    for _ in range(2):  # fre.sh and fre_sh would share metric names, so the second is refused
        caplog.clear()
        (topic,) = client.ask(by_name("a_b", create=True), 12).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        client.server.run_until(lambda: not client.server.broker.contexts.topics.on_demand)
        assert "auto-creation of topic 'a_b' failed" in caplog.text


def test_creations_on_demand_are_bounded(server: Server, client: Connection) -> None:
    server.broker.contexts.topics.on_demand.update(f"other-{number}" for number in range(MAX_ON_DEMAND - 1))
    client.ask(by_name("first", "second", create=True), 12)
    assert client.ask(by_name("second"), 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = server.broker.contexts.topics
    server.run_until(lambda: "first" not in topics.on_demand)
    names = {topic.name for topic in client.ask(MetadataRequest(topics=None), 9).topics}
    assert names == {"first"}


def test_topics_are_not_created_unless_both_sides_want(make_server: Callable[..., Server]) -> None:
    client = make_server().connect()
    assert client.ask(by_name("t"), 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    client = make_server(auto_create_topics_enable="false").connect()
    assert client.ask(by_name("t", create=True), 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_authorized_operations_are_returned_on_request(client: Connection) -> None:
    client.create_topic("t")
    plain = client.ask(by_name("t"), 8)
    assert (plain.topics[0].topic_authorized_operations, plain.cluster_authorized_operations) == (NOT_ASKED, NOT_ASKED)
    asked = by_name("t", include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
    response = client.ask(asked, 8)
    assert response.topics[0].topic_authorized_operations == 0b110111111000
    assert response.cluster_authorized_operations > 0


def test_describe_cluster(server: Server, client: Connection) -> None:
    for version in range(3):
        response = client.ask(DescribeClusterRequest(), version)
        assert (response.error_code, response.cluster_id) == (0, server.broker.cluster_id)
        assert [(broker.broker_id, broker.port) for broker in response.brokers] == [(1, 9092)]
    assert client.ask(DescribeClusterRequest(endpoint_type=2), 1).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert client.ask(DescribeClusterRequest(endpoint_type=7), 1).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def test_topic_partitions_come_in_pages(client: Connection) -> None:
    client.create_topic("a", 3)
    client.create_topic("b", 2)
    pages, cursor = [], None
    for _ in range(5):
        response = client.ask(DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor), 0)
        pages.append([(t.name, p.partition_index) for t in response.topics for p in t.partitions])
        if response.next_cursor is None:
            break
        cursor = Cursor(
            topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
        )
    assert pages == [[("a", 0), ("a", 1)], [("a", 2), ("b", 0)], [("b", 1)]]


def test_topic_partitions_that_are_not_there(client: Connection) -> None:
    topics = [TopicRequest(name=name) for name in ("nope", "b a d")]
    response = client.ask(DescribeTopicPartitionsRequest(topics=topics), 0)
    assert {t.name: t.error_code for t in response.topics} == {
        "b a d": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert client.ask(by_name("nope"), 9).topics[0].error_code, "and none was created"
    bad = DescribeTopicPartitionsRequest(topics=topics, cursor=Cursor(topic_name="t", partition_index=-1))
    assert {t.error_code for t in client.ask(bad, 0).topics} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("version", range(1, 7))
def test_the_coordinator_of_a_transactional_id(client: Connection, version: int) -> None:
    if version < 4:
        response = client.ask(FindCoordinatorRequest(key="t", key_type=1), version)
        assert (response.error_code, response.node_id) == (ErrorCode.NONE, 1)
    else:
        found = client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t", "u"]), version).coordinators
        assert [(c.key, c.error_code, c.node_id) for c in found] == [
            ("t", ErrorCode.NONE, 1),
            ("u", ErrorCode.NONE, 1),
        ]


def test_a_coordinator_of_an_unknown_type(client: Connection) -> None:
    (found,) = client.ask(FindCoordinatorRequest(key_type=9, coordinator_keys=["g"]), 6).coordinators
    assert found.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.promise("D4", "T10")
def test_producer_ids_are_given_once_also_over_a_crash(make_server: Callable[..., Server]) -> None:
    server = make_server()
    client = server.connect()
    given = [client.ask(InitProducerIdRequest(), version).producer_id for version in range(6)]
    assert given == [0, 1, 2, 3, 4, 5]
    server.restart()
    client = server.connect()
    assert client.ask(InitProducerIdRequest(), 4).producer_id == 1000


def test_producers_that_wait_for_one_block_all_get_an_id(server: Server) -> None:
    clients = [server.connect() for _ in range(20)]
    for each in clients:
        assert not each.send(InitProducerIdRequest(), 4)
    assert sorted(each.answer().producer_id for each in clients) == list(range(20))


def test_init_producer_id_before_lookup_gets_not_coordinator(client: Connection) -> None:
    response = client.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), 4)
    assert (response.error_code, response.producer_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    empty = client.ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), 4)
    assert empty.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(1, 6))
def test_log_dirs(server: Server, client: Connection, version: int) -> None:
    client.create_topic("a", 2)
    client.create_topic("b")
    client.produce("a", b"x" * 100, partition=1)
    (result,) = client.ask(DescribeLogDirsRequest(topics=None), version).results
    assert (result.error_code, result.log_dir) == (0, str(server.directory / "data"))
    sizes = {(t.name, p.partition_index): p.partition_size for t in result.topics for p in t.partitions}
    assert sizes.keys() == {("a", 0), ("a", 1), ("b", 0)}
    assert sizes[("a", 1)] > 100
    assert result.total_bytes > result.usable_bytes > 0 if version >= 4 else result.total_bytes == -1
    one = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="a", partitions=[0])])
    (result,) = client.ask(one, version).results
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in result.topics] == [("a", [0])]


def test_directory_is_full_after_a_write_without_space(server: Server, client: Connection) -> None:
    health = server.broker.parts.logs.directories[0].health
    (before,) = client.ask(DescribeLogDirsRequest(topics=[]), 4).results
    assert before.usable_bytes > 0
    health.note_error(OSError(errno.EDQUOT, "quota exceeded"), "an append")
    (result,) = client.ask(DescribeLogDirsRequest(topics=[]), 4).results
    assert (result.error_code, result.usable_bytes, result.total_bytes) == (0, 0, before.total_bytes)


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("name", ["t", None])
def test_topic_id_before_version_12_refuses_the_request(client: Connection, version: int, name: str | None) -> None:
    client.create_topic("t", 1)
    topics = [MetadataRequestTopic(name=name, topic_id=bytes(15) + b"\1"), MetadataRequestTopic(name="t")]
    response = client.ask(MetadataRequest(topics=topics), version)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST] * 2
