"""Invalid group requests of a client, and Apache Kafka's error code for each; the group is unharmed.

Requests are encoded by hand, in the versions that current clients use. OTTLA_TEST_BOOTSTRAP=host:port checks the table
against that broker: Apache Kafka 4.3.1 agrees with every row.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.connection import Connection, parse_bootstrap_servers
from ottla.common.errors import ErrorCode
from ottla.protocol.codec import write_message
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.registry import ApiKey
from ottla.testing import Broker

NUMBERS = itertools.count(int(time.time()) % 100_000 * 100)
WAIT_S = 90.0
CONFIGS = {
    "group.initial.rebalance.delay.ms": 100,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.session.timeout.ms": 60_000,
}
ASSIGNMENT = b"\0\0\0\0\0\0\0\0\0\0"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    other = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    if other:
        yield other
        return
    with Broker(configs=CONFIGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def topic(servers) -> str:
    name = f"errors-{next(NUMBERS)}"
    with Cluster(servers) as cluster:
        cluster.topics.create(name, 2)
        cluster.groups.commit_offsets(f"{name}-warm", {(name, 0): 0})
        cluster.groups.find()  # asked again until the coordinator has loaded the partitions of all groups
    return name


@pytest.fixture
def connection(servers) -> Iterator[Connection]:
    [(host, port)] = parse_bootstrap_servers(servers)
    connected = Connection(host, port, client_id="errors", timeout_s=WAIT_S, software_version="1")
    yield connected
    connected.close()


@pytest.fixture
def name() -> str:
    return f"errors-{next(NUMBERS)}"


def subscription(topic: str) -> bytes:
    out = bytearray(2)
    write_message(ConsumerProtocolSubscription(topics=[topic]), 0, out)
    return bytes(out)


class Classic:
    """A classic group with one member, stable, that has committed offset 5 in partition 0."""

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        self.connection = connection
        self.group = group
        self.topic = topic
        self.metadata = subscription(topic)
        joined = self.join()
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = self.join(member_id=joined.member_id)
        assert joined.error_code == 0
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assert (joined.leader, joined.protocol_name, len(joined.members)) == (self.member_id, "range", 1)
        assert self.sync().error_code == 0
        assert self.commit() == 0

    def ask(self, api_key: ApiKey, request: Any, version: int | None = None) -> Any:
        return self.connection.request(api_key, request, max_version=version)

    def join(self, version: int | None = None, **changes: Any) -> Any:
        values: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": 60_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=self.metadata)],
        }
        return self.ask(ApiKey.JOIN_GROUP, JoinGroupRequest(**{**values, **changes}), version)

    def sync(self, **changes: Any) -> Any:
        values: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [SyncGroupRequestAssignment(member_id=self.member_id, assignment=ASSIGNMENT)],
        }
        return self.ask(ApiKey.SYNC_GROUP, SyncGroupRequest(**{**values, **changes}))

    def heartbeat(self, **changes: Any) -> int:
        values = {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}
        code: int = self.ask(ApiKey.HEARTBEAT, HeartbeatRequest(**{**values, **changes})).error_code
        return code

    def commit(
        self, topic: str | None = None, partition: int = 0, metadata: str = "", version: int = 9, **changes: Any
    ) -> int:
        values: dict[str, Any] = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
        }
        entry = OffsetCommitRequestPartition(partition_index=partition, committed_offset=5, committed_metadata=metadata)
        topics = [OffsetCommitRequestTopic(name=self.topic if topic is None else topic, partitions=[entry])]
        request = OffsetCommitRequest(**{**values, **changes}, topics=topics)
        response = self.ask(ApiKey.OFFSET_COMMIT, request, version)
        code: int = response.topics[0].partitions[0].error_code
        return code

    def leave(self, *members: MemberIdentity, group: str | None = None) -> tuple[int, list[int]]:
        request = LeaveGroupRequest(group_id=self.group if group is None else group, members=list(members))
        response = self.ask(ApiKey.LEAVE_GROUP, request)
        return response.error_code, [member.error_code for member in response.members]

    def fetch(self, group: str | None = None, **changes: Any) -> tuple[int, list[tuple[int, int]]]:
        wanted = OffsetFetchRequestGroup(
            group_id=self.group if group is None else group,
            topics=[OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0, 1])],
            **changes,
        )
        found = self.ask(ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=[wanted]), 9).groups[0]
        return found.error_code, [
            (partition.committed_offset, partition.error_code) for each in found.topics for partition in each.partitions
        ]

    def delete(self, *groups: str) -> list[int]:
        response = self.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=list(groups)))
        codes = {result.group_id: result.error_code for result in response.results}  # in any order
        return [codes[group] for group in groups]

    def delete_offsets(self, group: str, topic: str) -> tuple[int, list[int]]:
        partition = OffsetDeleteRequestPartition(partition_index=0)
        request = OffsetDeleteRequest(
            group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=[partition])]
        )
        response = self.ask(ApiKey.OFFSET_DELETE, request)
        return response.error_code, [each.error_code for found in response.topics for each in found.partitions]

    def describe(self, group: str) -> Any:
        return self.ask(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group])).groups[0]

    def unharmed(self) -> None:
        """The member is as it was."""
        assert self.heartbeat() == 0
        assert self.fetch()[1][0] == (5, 0)
        described = self.describe(self.group)
        assert described.group_state == "Stable"
        assert [member.member_id for member in described.members] == [self.member_id]


@pytest.fixture
def classic(connection, name, topic) -> Iterator[Classic]:
    group = Classic(connection, name, topic)
    yield group
    group.unharmed()


def protocols(*names: str, metadata: bytes = b"") -> list[JoinGroupRequestProtocol]:
    return [JoinGroupRequestProtocol(name=each, metadata=metadata) for each in names]


JOINS: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "empty group id": ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    "session too short": ({"session_timeout_ms": 5999}, ErrorCode.INVALID_SESSION_TIMEOUT),
    "session too long": ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
    "negative session": ({"session_timeout_ms": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
    "unknown member": ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    "other protocol type": ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "empty protocol type": ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "no protocols": ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "no common protocol": ({"protocols": protocols("roundrobin")}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
}


@pytest.mark.parametrize("case", list(JOINS))
def test_join(classic, case):
    changes, expected = JOINS[case]
    assert ErrorCode(classic.join(**changes).error_code) == expected


NEW_JOINS: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "member id of no group": ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    "no protocol type": ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "no protocols": ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
}


@pytest.mark.parametrize("case", list(NEW_JOINS))
def test_join_of_a_group_that_does_not_exist(classic, name, case):
    changes, expected = NEW_JOINS[case]
    assert ErrorCode(classic.join(group_id=f"{name}-new", **changes).error_code) == expected


@pytest.mark.parametrize(
    "metadata", [b"", b"\xff", b"\0\0\x7f\xff\xff\xff", bytes(range(256)) * 2000], ids=["none", "short", "lie", "large"]
)
def test_member_metadata_is_opaque(connection, name, topic, metadata):
    """Members have to handle invalid content; the group is stable, can be described and deleted."""
    if os.environ.get("OTTLA_TEST_BOOTSTRAP") and len(metadata) > 2:
        pytest.skip("Apache Kafka 4.3.1 never answers such a join")
    one = Classic(connection, name, topic)
    one.leave(MemberIdentity(member_id=one.member_id))
    joined = one.join(protocols=protocols("range", metadata=metadata))
    joined = one.join(member_id=joined.member_id, protocols=protocols("range", metadata=metadata))
    assert (joined.error_code, joined.members[0].metadata) == (0, metadata)
    assignments = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=metadata)]
    synced = one.sync(member_id=joined.member_id, generation_id=joined.generation_id, assignments=assignments)
    assert (synced.error_code, synced.assignment) == (0, metadata)
    described = one.describe(name)
    assert (described.error_code, described.group_state) == (0, "Stable")
    assert one.leave(MemberIdentity(member_id=joined.member_id)) == (0, [0])
    assert one.delete_offsets(name, topic) == (0, [0])


def test_an_assignment_beyond_a_message_is_refused(connection, name, topic):
    """1 MiB is the default limit of batches; the rebalance fails with a code and the group can continue."""
    one = Classic(connection, name, topic)
    one.leave(MemberIdentity(member_id=one.member_id))
    joined = one.join(member_id=one.join().member_id)
    assignments = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=bytes(1_200_000))]
    synced = one.sync(member_id=joined.member_id, generation_id=joined.generation_id, assignments=assignments)
    assert ErrorCode(synced.error_code) == ErrorCode.UNKNOWN_SERVER_ERROR
    again = one.join(member_id=joined.member_id)
    assert again.error_code == 0
    good = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=ASSIGNMENT)]
    assert one.sync(member_id=joined.member_id, generation_id=again.generation_id, assignments=good).error_code == 0


CALLS: dict[str, tuple[Callable[[Classic], object], object]] = {
    "sync: unknown member": (lambda g: g.sync(member_id="nobody").error_code, ErrorCode.UNKNOWN_MEMBER_ID),
    "sync: unknown group": (lambda g: g.sync(group_id="no group").error_code, ErrorCode.UNKNOWN_MEMBER_ID),
    "sync: empty group id": (lambda g: g.sync(group_id="").error_code, ErrorCode.INVALID_GROUP_ID),
    "sync: old generation": (lambda g: g.sync(generation_id=0).error_code, ErrorCode.ILLEGAL_GENERATION),
    "sync: future generation": (lambda g: g.sync(generation_id=99).error_code, ErrorCode.ILLEGAL_GENERATION),
    "sync: other protocol name": (
        lambda g: g.sync(protocol_name="other").error_code,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    "sync: other protocol type": (
        lambda g: g.sync(protocol_type="other").error_code,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    "sync: no protocol type": (lambda g: g.sync(protocol_type=None).error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "sync: again": (lambda g: g.sync(assignments=[]).error_code, ErrorCode.NONE),
    "heartbeat: unknown member": (lambda g: g.heartbeat(member_id="nobody"), ErrorCode.UNKNOWN_MEMBER_ID),
    "heartbeat: unknown group": (lambda g: g.heartbeat(group_id="no group"), ErrorCode.UNKNOWN_MEMBER_ID),
    "heartbeat: empty group id": (lambda g: g.heartbeat(group_id=""), ErrorCode.INVALID_GROUP_ID),
    "heartbeat: old generation": (lambda g: g.heartbeat(generation_id=0), ErrorCode.ILLEGAL_GENERATION),
    "heartbeat: unknown instance": (lambda g: g.heartbeat(group_instance_id="i"), ErrorCode.UNKNOWN_MEMBER_ID),
    "commit: unknown member": (lambda g: g.commit(member_id="nobody"), ErrorCode.UNKNOWN_MEMBER_ID),
    "commit: old generation": (lambda g: g.commit(generation_id_or_member_epoch=0), ErrorCode.ILLEGAL_GENERATION),
    "commit: future generation": (lambda g: g.commit(generation_id_or_member_epoch=9), ErrorCode.ILLEGAL_GENERATION),
    "commit: without a member into a group with members": (
        lambda g: g.commit(member_id="", generation_id_or_member_epoch=-1),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "commit: a generation of no group": (lambda g: g.commit(group_id="no group"), ErrorCode.GROUP_ID_NOT_FOUND),
    "commit: a generation of no group, version 8": (
        lambda g: g.commit(group_id="no group", version=8),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    "commit: a generation of an empty group id": (lambda g: g.commit(group_id=""), ErrorCode.GROUP_ID_NOT_FOUND),
    "commit: unknown topic": (lambda g: g.commit(topic="no-topic"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "commit: unknown partition": (lambda g: g.commit(partition=2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "commit: much metadata": (lambda g: g.commit(metadata="x" * 4097), ErrorCode.OFFSET_METADATA_TOO_LARGE),
    "commit: most metadata": (lambda g: g.commit(metadata="x" * 4096), ErrorCode.NONE),
    "commit: unknown instance": (lambda g: g.commit(group_instance_id="i"), ErrorCode.UNKNOWN_MEMBER_ID),
    "leave: unknown member": (
        lambda g: g.leave(MemberIdentity(member_id="nobody")),
        (ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID]),
    ),
    "leave: unknown group": (
        lambda g: g.leave(MemberIdentity(member_id="nobody"), group="no group"),
        (ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID]),
    ),
    "leave: unknown instance": (
        lambda g: g.leave(MemberIdentity(member_id="", group_instance_id="i")),
        (ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID]),
    ),
    "leave: empty group id": (
        lambda g: g.leave(MemberIdentity(member_id="nobody"), group="")[0],
        ErrorCode.INVALID_GROUP_ID,
    ),
    "fetch: unknown group": (lambda g: g.fetch("no group"), (ErrorCode.NONE, [(-1, 0), (-1, 0)])),
    "fetch: empty group id": (lambda g: g.fetch("")[0], ErrorCode.NONE),
    "fetch: with a member of no consumer group": (
        lambda g: g.fetch(member_id="nobody", member_epoch=1)[0],
        ErrorCode.NONE,
    ),
    "delete: with members, none, empty id": (
        lambda g: g.delete(g.group, "no group", ""),
        [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND],
    ),
    "delete offsets: subscribed": (
        lambda g: g.delete_offsets(g.group, g.topic),
        (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]),
    ),
    "delete offsets: unknown topic": (
        lambda g: g.delete_offsets(g.group, "no-topic"),
        (ErrorCode.NONE, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    ),
    "delete offsets: unknown group": (
        lambda g: g.delete_offsets("no group", g.topic)[0],
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    "describe: unknown group": (
        lambda g: (g.describe("no group").error_code, g.describe("no group").group_state),
        (ErrorCode.GROUP_ID_NOT_FOUND, "Dead"),
    ),
    "describe: as a group of the other protocol": (
        lambda g: (
            g.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(group_ids=[g.group]))
            .groups[0]
            .error_code
        ),
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
}


@pytest.mark.parametrize("case", list(CALLS))
def test_classic(classic, case):
    call, expected = CALLS[case]
    assert call(classic) == expected


class ConsumerProtocol:
    """A group of the consumer protocol with one member that owns both partitions and has committed."""

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        self.connection = connection
        self.group = group
        self.topic = topic
        self.member_id = f"member-of-{group}"
        joined = self.heartbeat(member_epoch=0)
        assert joined.error_code == 0, joined
        self.member_epoch = joined.member_epoch
        self.owned = [
            TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
            for each in joined.assignment.topic_partitions
        ]
        assert [sorted(each.partitions) for each in self.owned] == [[0, 1]]
        assert self.confirm() == 0
        assert self.commit() == 0

    def heartbeat(self, **changes: Any) -> Any:
        values: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": [self.topic],
            "topic_partitions": [],
        }
        request = ConsumerGroupHeartbeatRequest(**{**values, **changes})
        return self.connection.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)

    def code(self, **changes: Any) -> ErrorCode:
        return ErrorCode(self.heartbeat(**{"member_epoch": self.member_epoch, **changes}).error_code)

    def confirm(self) -> int:
        """The heartbeat of a member with all its partitions."""
        code: int = self.heartbeat(member_epoch=self.member_epoch, topic_partitions=self.owned).error_code
        return code

    commit_version = 9

    def commit(self, **changes: Any) -> int:
        values = {"generation_id_or_member_epoch": self.member_epoch, "member_id": self.member_id}
        entry = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=self.group,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[entry])],
            **{**values, **changes},
        )
        response = self.connection.request(ApiKey.OFFSET_COMMIT, request, max_version=self.commit_version)
        code: int = response.topics[0].partitions[0].error_code
        return code

    def fetch(self, **member: Any) -> int:
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])]
        wanted = OffsetFetchRequestGroup(group_id=self.group, topics=topics, **member)
        response = self.connection.request(ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=[wanted]), max_version=9)
        code: int = response.groups[0].error_code
        return code

    def unharmed(self) -> None:
        assert self.confirm() == 0
        request = ConsumerGroupDescribeRequest(group_ids=[self.group])
        described = self.connection.request(ApiKey.CONSUMER_GROUP_DESCRIBE, request).groups[0]
        assert (described.error_code, described.group_state) == (0, "Stable")
        assert [member.member_id for member in described.members] == [self.member_id]
        assert described.members[0].member_epoch == self.member_epoch


@pytest.fixture
def consumer(connection, name, topic) -> Iterator[ConsumerProtocol]:
    group = ConsumerProtocol(connection, name, topic)
    yield group
    group.unharmed()


HEARTBEATS: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "empty group id": ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
    "no member id": ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
    "unknown member": ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    "unknown group": ({"group_id": "no group"}, ErrorCode.GROUP_ID_NOT_FOUND),
    "epoch ahead": ({"member_epoch": 1000}, ErrorCode.FENCED_MEMBER_EPOCH),
    "epoch below what there is": ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
    "first without timeout": ({"member_epoch": 0, "rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
    "first without partitions": ({"member_epoch": 0, "topic_partitions": None}, ErrorCode.INVALID_REQUEST),
    "first without topics": ({"member_epoch": 0, "subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
    "unknown assignor": ({"server_assignor": "none such"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    "no assignor name": ({"server_assignor": ""}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    "no instance name": ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
    "no rack name": ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
    "a bad pattern": ({"subscribed_topic_regex": "a(b"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    "leaving for good without a name": ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
    "unknown instance": ({"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    "no member leaves": ({"member_id": "nobody", "member_epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
}


@pytest.mark.parametrize("case", list(HEARTBEATS))
def test_consumer_heartbeat(consumer, case):
    changes, expected = HEARTBEATS[case]
    assert consumer.code(**changes) == expected


CONSUMER_CALLS: dict[str, tuple[Callable[[ConsumerProtocol], object], object]] = {
    "commit: stale epoch": (lambda g: g.commit(generation_id_or_member_epoch=0), ErrorCode.STALE_MEMBER_EPOCH),
    "commit: epoch ahead": (lambda g: g.commit(generation_id_or_member_epoch=99), ErrorCode.STALE_MEMBER_EPOCH),
    "commit: unknown member": (lambda g: g.commit(member_id="nobody"), ErrorCode.UNKNOWN_MEMBER_ID),
    "commit: no member id": (
        lambda g: g.commit(member_id="", generation_id_or_member_epoch=-1),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "fetch: stale epoch": (
        lambda g: g.fetch(member_id=g.member_id, member_epoch=0),
        ErrorCode.STALE_MEMBER_EPOCH,
    ),
    "fetch: unknown member": (lambda g: g.fetch(member_id="nobody", member_epoch=1), ErrorCode.UNKNOWN_MEMBER_ID),
    "fetch: no member id": (lambda g: g.fetch(), ErrorCode.NONE),
    "fetch: the member": (lambda g: g.fetch(member_id=g.member_id, member_epoch=g.member_epoch), ErrorCode.NONE),
    "classic heartbeat": (
        lambda g: (
            g.connection.request(
                ApiKey.HEARTBEAT, HeartbeatRequest(group_id=g.group, generation_id=1, member_id="nobody")
            ).error_code
        ),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "classic describe": (
        lambda g: (
            g.connection.request(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[g.group])).groups[0].error_code
        ),
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    "delete": (
        lambda g: (
            g.connection.request(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=[g.group]))
            .results[0]
            .error_code
        ),
        ErrorCode.NON_EMPTY_GROUP,
    ),
    "classic join without protocols": (
        lambda g: (
            g.connection.request(
                ApiKey.JOIN_GROUP,
                JoinGroupRequest(
                    group_id=g.group,
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=10_000,
                    protocol_type="connect",
                    protocols=protocols("range"),
                ),
            ).error_code
        ),
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
}


@pytest.mark.parametrize("case", list(CONSUMER_CALLS))
def test_consumer_group(consumer, case):
    call, expected = CONSUMER_CALLS[case]
    assert call(consumer) == expected
