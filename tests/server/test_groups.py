"""Groups in a whole broker: coordinator lookup, durability of commits, content of the log."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import ErrorCode, OperatorError
from ottla.coordinator.group.offsets.committed_offset import unpack
from ottla.coordinator.group.records import OffsetPlace, decode_record, encode_record
from ottla.coordinator.runtime.key_hash import partition_for
from ottla.protocol.header import decode_response, encode_response
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.record.batch import iter_batches
from ottla.replica.partition import Partition
from ottla.server.handlers.groups.describe_groups import DESCRIBE_GROUPS

from .harness import Connection, Server

OFFSETS_TOPIC = "__consumer_offsets"
KAFKAS_LOGS = Path(__file__).parent / "kafka_consumer_offsets"
FAST = {"group_initial_rebalance_delay_ms": "0"}


def join(client: Connection, group: str = "g", member_id: str = "", **fields: Any) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
        **fields,
    )
    response = client.ask(request, 9)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = response.member_id
        response = client.ask(request, 9)
    return response


def commit(client: Connection, topic: str, offset: int, *, group: str = "g", version: int = 8, **fields: Any) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m")
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])], **fields
    )
    ((answer,),) = [t.partitions for t in client.ask(request, version).topics]
    return int(answer.error_code)


def committed(client: Connection, topic: str, group: str = "g") -> int:
    request = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])])
    response = client.ask(request, 5)
    assert response.error_code == 0
    ((answer,),) = [t.partitions for t in response.topics]
    assert answer.error_code == 0
    return int(answer.committed_offset)


@pytest.mark.parametrize("version", range(7))
def test_first_coordinator_lookup_creates_the_topic(client: Connection, version: int) -> None:
    for _ in range(2):
        if version < 4:
            response = client.ask(FindCoordinatorRequest(key="g"), version)
            assert (response.error_code, response.node_id, response.port) == (0, 1, 9092)
        else:
            found = client.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"]), version).coordinators
            assert [(c.key, c.error_code, c.node_id, c.host, c.port) for c in found] == [
                ("g", 0, 1, "127.0.0.1", 9092),
                ("h", 0, 1, "127.0.0.1", 9092),
            ]
    (topic,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS_TOPIC)]), 12).topics
    assert (topic.is_internal, len(topic.partitions), topic.partitions[0].replica_nodes) == (True, 50, [1])
    resource = DescribeConfigsResource(resource_type=2, resource_name=OFFSETS_TOPIC)
    (result,) = client.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    configs = {config.name: config.value for config in result.configs}
    assert configs["cleanup.policy"] == "compact"
    assert configs["compression.type"] == "producer"
    assert configs["segment.bytes"] == str(100 * 1024**2)


@pytest.mark.parametrize("again", [False, True])
def test_join_succeeds_right_after_the_coordinator_lookup(make_server: Callable[..., Server], again: bool) -> None:
    server = make_server(**FAST)
    if again:
        client = server.connect()
        assert join_after_finding(client) == ErrorCode.NONE
        server.stop()
        server = make_server(**FAST)
    clients = [server.connect() for _ in range(20)]
    for client in clients:
        client.send(FindCoordinatorRequest(coordinator_keys=[f"g{clients.index(client)}", "h"]), 6)
    for number, client in enumerate(clients):
        assert {each.error_code for each in client.answer().coordinators} == {0}
        assert join(client, f"g{number}").error_code == ErrorCode.NONE


def join_after_finding(client: Connection) -> int:
    (found,) = client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6).coordinators
    assert found.error_code == ErrorCode.NONE
    return join(client).error_code


def test_the_settings_of_the_topic(make_server: Callable[..., Server]) -> None:
    client = make_server(offsets_topic_num_partitions="3", offsets_topic_segment_bytes=str(2**20)).connect()
    client.coordinate("g")
    image = client.server.broker.parts.publisher.image
    assert len(image.topics[OFFSETS_TOPIC].partitions) == 3
    assert image.topic_configs(OFFSETS_TOPIC)["segment.bytes"] == str(2**20)


def test_a_replication_factor_that_is_set_is_enforced(make_server: Callable[..., Server]) -> None:
    client = make_server(offsets_topic_replication_factor="2").connect()
    for _ in range(2):
        (found,) = client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6).coordinators
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert client.server.broker.parts.publisher.image.topic(OFFSETS_TOPIC) is None


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"group.min.session.timeout.ms": "2", "group.max.session.timeout.ms": "1"}, "group.min.session.timeout.ms"),
        ({"group.consumer.heartbeat.interval.ms": "1000"}, "group.consumer.min.heartbeat.interval.ms"),
        ({"group.consumer.session.timeout.ms": "61000"}, "group.consumer.max.session.timeout.ms"),
        ({"group.share.record.lock.duration.ms": "61000"}, "group.share.max.record.lock.duration.ms"),
        ({"group.share.min.heartbeat.interval.ms": "6000"}, "group.share.heartbeat.interval.ms"),
        ({"group.share.max.share.sessions": "100"}, "group.share.max.size"),
        ({"group.share.assignors": "uniform"}, "group.share.assignors"),
        ({"group.consumer.migration.policy": "never"}, "group.consumer.migration.policy"),
        ({"offsets.retention.minutes": "0"}, "offsets.retention.minutes"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, str], named: str) -> None:
    from ottla.common.config.broker_configs import BrokerConfig

    with pytest.raises(OperatorError, match=named):
        BrokerConfig.parse(settings)


def test_before_there_is_a_coordinator(client: Connection) -> None:
    """A client without a lookup gets NOT_COORDINATOR; no client is answered from an empty state."""
    client.create_topic("t")
    assert commit(client, "t", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert client.ask(HeartbeatRequest(group_id="g", member_id="m"), 4).error_code == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    )


@pytest.mark.parametrize("version", [5, 6])
def test_failed_describe_is_answered_in_each_version(version: int) -> None:
    failed = DESCRIBE_GROUPS.error_response(DescribeGroupsRequest(groups=["g"]), ErrorCode.NOT_COORDINATOR, "words")
    frame = encode_response(DESCRIBE_GROUPS.key, version, 1, failed)
    (group,) = decode_response(DESCRIBE_GROUPS.key, version, frame[4:])[1].groups
    assert (group.group_id, group.error_code) == ("g", ErrorCode.NOT_COORDINATOR)


def test_the_life_of_a_member(make_server: Callable[..., Server]) -> None:
    client = make_server(**FAST).connect()
    client.create_topic("t")
    client.coordinate("g")
    joined = join(client)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    me: dict[str, Any] = {"group_id": "g", "member_id": joined.member_id, "generation_id": 1}
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
    synced = client.ask(
        SyncGroupRequest(protocol_type="consumer", protocol_name="range", assignments=[assignment], **me), 5
    )
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"mine")
    assert client.ask(HeartbeatRequest(**me), 4).error_code == 0
    by_member: dict[str, Any] = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
    assert commit(client, "t", 5, **by_member) == 0
    assert commit(client, "t", 6, member_id=joined.member_id, generation_id_or_member_epoch=7) == (
        ErrorCode.ILLEGAL_GENERATION
    )
    (group,) = client.ask(DescribeGroupsRequest(groups=["g"], include_authorized_operations=True), 5).groups
    assert (group.group_state, group.protocol_data, group.authorized_operations) == ("Stable", "range", 3400)
    assert [m.client_host for m in group.members] == ["/127.0.0.1"]
    (listed,) = client.ask(ListGroupsRequest(), 5).groups
    assert (listed.group_id, listed.group_state, listed.group_type) == ("g", "Stable", "classic")
    left = client.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=joined.member_id)]), 5)
    assert (left.error_code, [m.error_code for m in left.members]) == (0, [0])
    assert committed(client, "t") == 5
    (deleted,) = client.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert deleted.error_code == 0
    assert committed(client, "t") == -1


def test_committed_offsets_survive_a_restart(make_server: Callable[..., Server]) -> None:
    server = make_server(**FAST)
    client = server.connect()
    client.create_topic("t")
    client.coordinate("g")
    assert [commit(client, "t", offset) for offset in range(10)] == [0] * 10
    joined = join(client, "members", group_instance_id="i")
    me: dict[str, Any] = {"group_id": "members", "member_id": joined.member_id, "generation_id": 1}
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
    client.ask(SyncGroupRequest(group_instance_id="i", assignments=[assignment], **me), 4)
    server.restart()
    client = server.connect()
    client.coordinate("g")
    assert committed(client, "t") == 9
    client.coordinate("members")
    assert client.ask(HeartbeatRequest(group_instance_id="i", **me), 4).error_code == 0


def test_waiting_members_are_answered_when_the_broker_stops(make_server: Callable[..., Server]) -> None:
    server = make_server()
    client = server.connect()
    client.coordinate("g")
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="x",
        protocols=[JoinGroupRequestProtocol(name="y", metadata=b"")],
    )
    assert not client.send(request, 3), "parked for the initial rebalance delay"
    server.stop()
    assert client.answer().error_code == ErrorCode.NOT_COORDINATOR
    server.start()


def test_the_log_holds_kafkas_records(client: Connection) -> None:
    client.create_topic("t")
    client.coordinate("g")
    assert commit(client, "t", 5) == 0
    index = partition_for("g", 50)
    (record,) = [
        decode_record(bytes(record.key or b""), record.value)
        for batch in iter_batches(stored(client.server, index))
        for record in batch.records()
    ]
    assert record is not None
    assert record.key == OffsetPlace("g", "t", 0)
    committed = unpack(record.value)
    assert (committed.offset, committed.metadata) == (5, "m")
    assert committed.topic_id == client.server.broker.parts.publisher.image.topics["t"].topic_id


def stored(server: Server, index: int) -> bytes:
    partition: Partition = server.broker.parts.replicas.find(OFFSETS_TOPIC, index)
    region = partition.log.read(0, 2**20, max_offset=partition.log.log_end_offset).records
    assert region is not None
    data = bytearray(region.length)
    with memoryview(data) as view:
        region.read_into(view, 0)
    region.release()
    return bytes(data)


def test_commits_of_one_turn_share_a_batch(client: Connection) -> None:
    client.create_topic("t")
    client.coordinate("g")
    others = [client.server.connect() for _ in range(5)]
    request = OffsetCommitRequest(
        group_id="g",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(committed_offset=1)])],
    )
    for other in others:
        assert not other.send(request, 2)
    assert [other.answer().topics[0].partitions[0].error_code for other in others] == [0] * 5
    assert len(list(iter_batches(stored(client.server, partition_for("g", 50))))) == 1


def test_offsets_of_a_deleted_topic_go(client: Connection) -> None:
    client.create_topic("t")
    client.coordinate("g")
    assert commit(client, "t", 5) == 0
    client.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    while committed(client, "t") != -1:
        client.server.turn()


def test_clients_cannot_write_to_the_offsets_topic(client: Connection) -> None:
    client.coordinate("g")
    answer = client.produce(OFFSETS_TOPIC, b"forged", key=b"k")
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_consumer_protocol_follows_its_feature(make_server: Callable[..., Server]) -> None:
    client = make_server().connect()
    client.coordinate("g")
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m" * 22, rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert client.ask(heartbeat, 1).error_code == 0
    off = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
    assert client.ask(UpdateFeaturesRequest(feature_updates=[off]), 1).error_code == 0
    assert client.ask(heartbeat, 1).error_code == ErrorCode.UNSUPPORTED_VERSION
    (group,) = client.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert group.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_records_of_apache_kafka_are_written_as_they_were_read() -> None:
    """A file of each kind of group, from Apache Kafka 4.3.1: classic, static, consumer protocol, both in one."""
    seen = set()
    for path in KAFKAS_LOGS.iterdir():
        for batch in iter_batches(path.read_bytes()):
            for stored_record in batch.records():
                key = bytes(stored_record.key or b"")
                value = None if stored_record.value is None else bytes(stored_record.value)
                record = decode_record(key, value)
                assert record is not None
                assert encode_record(record) == (key, value)
                seen.add(int.from_bytes(key[:2], "big"))
    assert seen == {1, 2, 3, 4, 5, 6, 7, 8, 16}


def test_groups_that_apache_kafka_left_are_loaded(make_server: Callable[..., Server]) -> None:
    """gc and gk each have a static member that is expected to rejoin; gm changed its protocol while it had members."""
    server = make_server()
    server.connect().coordinate("g")
    server.stop()
    data = server.directory / "data"
    (data / ".kafka_cleanshutdown").unlink()
    for path in KAFKAS_LOGS.iterdir():
        segment = data / path.stem / "00000000000000000000.log"
        assert segment.exists()
        shutil.copy(path, segment)
    server.start()
    client = server.connect()
    client.coordinate("g")
    listed = client.ask(ListGroupsRequest(), 5).groups
    assert sorted((group.group_id, group.group_type, group.group_state) for group in listed) == [
        ("gc", "classic", "Stable"),
        ("gk", "consumer", "Assigning"),
        ("gm", "consumer", "Empty"),
    ]
    for group in ("gc", "gk", "gm"):
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        (topic,) = client.ask(request, 9).groups[0].topics
        assert sum(partition.committed_offset for partition in topic.partitions) == 600


def test_several_groups_in_one_fetch(client: Connection) -> None:
    client.create_topic("t")
    client.coordinate("g")
    for offset, group in enumerate("abc"):
        client.coordinate(group)
        assert commit(client, "t", offset, group=group) == 0
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=g, topics=None) for g in "cax"])
    groups = client.ask(request, 9).groups
    assert [g.group_id for g in groups] == ["c", "a", "x"]
    assert [[p.committed_offset for t in g.topics for p in t.partitions] for g in groups] == [[2], [0], []]


def test_offset_delete_of_no_group(client: Connection) -> None:
    client.coordinate("g")
    assert client.ask(OffsetDeleteRequest(group_id="g"), 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_gauges(make_server: Callable[..., Server]) -> None:
    client = make_server(**FAST).connect()
    client.create_topic("t")
    client.coordinate("g")
    commit(client, "t", 5)
    join(client, "g2" if partition_for("g2", 50) == partition_for("g", 50) else "g")
    registry = client.server.registry
    read = {
        (family.name, *dict(labels).values()): metric.current()
        for family in registry.families()
        for labels, metric in family.series.items()
        if hasattr(metric, "current")
    }
    assert read["kafka_coordinator_group_groupmetadatamanager_numgroups",] >= 1
    assert read["kafka_coordinator_group_groupmetadatamanager_numoffsets",] == 1
    assert read["kafka_server_group_coordinator_metrics_group_count", "classic"] >= 1
    assert read["kafka_server_group_coordinator_metrics_num_partitions", "active"] == 50
    assert read["ottla_group_coordinator_operations", "commit-offset"] == 1
    assert read["ottla_group_coordinator_operations", "classic-group-join"] == 2
    assert read["ottla_group_coordinator_operations", "delete-offsets"] == 0


def test_deleted_offsets_topic_is_recreated_empty(client: Connection) -> None:
    client.create_topic("t")
    client.coordinate("g")
    assert commit(client, "t", 5) == 0
    client.ask(DeleteTopicsRequest(topic_names=[OFFSETS_TOPIC]), 5)
    assert commit(client, "t", 6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    client.coordinate("g")
    assert committed(client, "t") == -1
    assert commit(client, "t", 7) == 0
    assert committed(client, "t") == 7
