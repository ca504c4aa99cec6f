"""ACLs in a real broker: created, described and deleted over the wire, and enforced without exception."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, PatternType, Permission, ResourceType
from ottla.common.logs import AUDIT_LOGGER
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.registry import ApiKey
from ottla.server.requests.principals import pack_principal

from .harness import Connection, Server, fetch_request, fetched, produce_request
from .test_envelope import ControllerClient, request

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ALICE, ROOT = "User:alice", "User:root"
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
TOPIC, GROUP, TXN = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_TXN = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def creation(kind: ResourceType, name: str, operation: int, principal: str = ALICE, **other: Any) -> AclCreation:
    fields = {
        "resource_pattern_type": PatternType.LITERAL,
        "host": "*",
        "permission_type": Permission.ALLOW,
        **other,
    }
    return AclCreation(resource_type=kind, resource_name=name, operation=operation, principal=principal, **fields)


ANYTHING: dict[str, Any] = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": Permission.ANY,
}
"""A filter that matches everything."""


def everything(**fields: Any) -> DeleteAclsFilter:
    return DeleteAclsFilter(**{**ANYTHING, **fields})


class World:
    """A broker with an authorizer, and an administrator that grants permissions."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.root = self.client(ROOT)
        self.alice = self.client(ALICE)

    def client(self, principal: str) -> Connection:
        client = self.server.connect()
        client.channel.principal = principal
        return client

    def allow(self, *acls: AclCreation) -> None:
        response = self.root.ask(CreateAclsRequest(creations=list(acls)), 3)
        assert [result.error_code for result in response.results] == [0] * len(acls)

    def revoke(self, **fields: Any) -> int:
        (result,) = self.root.ask(DeleteAclsRequest(filters=[everything(**fields)]), 3).filter_results
        assert result.error_code == 0
        return len(result.matching_acls)

    def described(self, **fields: Any) -> list[tuple[Any, ...]]:
        response = self.root.ask(DescribeAclsRequest(**{**ANYTHING, **fields}), 3)
        assert response.error_code == 0
        return [
            (
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
            )
            for resource in response.resources
            for acl in resource.acls
        ]


@pytest.fixture
def world(make_server: Callable[..., Server]) -> World:
    return World(make_server(authorizer_class_name=STANDARD, super_users=f"{ROOT};User:admin"))


# --- the APIs ---------------------------------------------------------------------------------------------------------


def test_acls_are_created_described_deleted_and_survive_restart(world: World) -> None:
    world.root.create_topic("t")
    assert world.alice.produce("t", b"x").error_code == NO_TOPIC
    world.allow(
        creation(TOPIC, "t", WRITE),
        creation(TOPIC, "t", WRITE),
        creation(GROUP, "team.", READ, resource_pattern_type=PatternType.PREFIXED, host="10.0.0.1"),
    )
    assert world.alice.produce("t", b"x").error_code == 0
    write = (TOPIC, "t", PatternType.LITERAL, ALICE, "*", WRITE)
    read = (GROUP, "team.", PatternType.PREFIXED, ALICE, "10.0.0.1", READ)
    assert world.described() == [write, read]
    assert world.described(resource_type_filter=GROUP) == [read]
    assert world.described(resource_name_filter="team.a", pattern_type_filter=PatternType.MATCH) == [read]
    assert world.described(resource_name_filter="team.", pattern_type_filter=PatternType.LITERAL) == []
    assert world.described(host_filter="10.0.0.1", operation=READ, permission_type=Permission.ALLOW) == [read]
    assert world.described(principal_filter="User:bob") == []
    world.server.restart()
    world = World(world.server)
    assert world.described() == [write, read]
    assert world.alice.produce("t", b"x").error_code == 0
    assert world.revoke(operation=WRITE) == 1
    assert world.described() == [read]
    assert world.alice.produce("t", b"x").error_code == NO_TOPIC
    assert world.revoke(operation=WRITE) == 0


@pytest.mark.parametrize(
    ("bad", "code", "words"),
    [
        (creation(ResourceType.ANY, "t", READ), ErrorCode.INVALID_REQUEST, "resourceType ANY"),
        (creation(99, "t", READ), ErrorCode.INVALID_REQUEST, "resourceType UNKNOWN"),  # type: ignore[arg-type]
        (creation(ResourceType.CLUSTER, "other", ALL), ErrorCode.INVALID_REQUEST, "kafka-cluster"),
        (creation(TOPIC, "", READ), ErrorCode.INVALID_REQUEST, "empty resource name"),
        (creation(TOPIC, "t", AclOperation.ANY), ErrorCode.INVALID_REQUEST, "operation ANY"),
        (creation(TOPIC, "t", 0), ErrorCode.INVALID_REQUEST, "operation UNKNOWN"),
        (creation(TOPIC, "t", READ, permission_type=1), ErrorCode.INVALID_REQUEST, "permissionType ANY"),
        (creation(TOPIC, "t", READ, resource_pattern_type=2), ErrorCode.INVALID_REQUEST, "patternType MATCH"),
        (creation(TOPIC, "t", READ, "alice"), ErrorCode.INVALID_REQUEST, "principal"),
        (creation(TOPIC, "t", READ, host=""), ErrorCode.INVALID_REQUEST, "Host"),
        (creation(TOPIC, "t", READ, host="10.0.0.0/8"), ErrorCode.UNSUPPORTED_VERSION, "4.4-IV1"),
    ],
)
def test_invalid_acl_is_refused_and_others_are_created(
    world: World, bad: AclCreation, code: ErrorCode, words: str
) -> None:
    good = creation(TOPIC, "t", READ)
    first, second = world.root.ask(CreateAclsRequest(creations=[bad, good]), 3).results
    assert first.error_code == code
    assert words in first.error_message
    assert second.error_code == 0
    assert len(world.described()) == 1


def test_a_filter_that_means_nothing_is_refused(world: World) -> None:
    world.allow(creation(TOPIC, "t", READ))
    for fields in ({"operation": 0}, {"permission_type": 9}, {"resource_type_filter": 0}, {"pattern_type_filter": 9}):
        (result,) = world.root.ask(DeleteAclsRequest(filters=[everything(**fields)]), 3).filter_results
        assert (result.error_code, result.matching_acls) == (ErrorCode.INVALID_REQUEST, [])
        request = DescribeAclsRequest(**{**ANYTHING, **fields})
        assert world.root.ask(request, 3).error_code == ErrorCode.INVALID_REQUEST
    assert len(world.described()) == 1


def test_acl_administration_needs_permission(world: World) -> None:
    asked = CreateAclsRequest(creations=[creation(TOPIC, "t", ALL)])
    assert world.alice.ask(asked, 3).results[0].error_code == NO_CLUSTER
    removal = DeleteAclsRequest(filters=[everything()])
    assert world.alice.ask(removal, 3).filter_results[0].error_code == NO_CLUSTER
    assert world.alice.ask(DescribeAclsRequest(resource_type_filter=1), 3).error_code == NO_CLUSTER
    world.allow(creation(ResourceType.CLUSTER, "kafka-cluster", AclOperation.ALTER))
    assert world.alice.ask(asked, 3).results[0].error_code == 0
    assert len(world.described(resource_type_filter=TOPIC)) == 1


def test_acl_requests_without_an_authorizer_are_disabled(client: Connection) -> None:
    disabled = ErrorCode.SECURITY_DISABLED
    assert client.ask(CreateAclsRequest(creations=[creation(TOPIC, "t", ALL)]), 3).results[0].error_code == disabled
    assert client.ask(DeleteAclsRequest(filters=[everything()]), 3).filter_results[0].error_code == disabled
    assert client.ask(DescribeAclsRequest(resource_type_filter=1), 3).error_code == disabled


def test_acls_by_host_hold_without_authentication(make_server: Callable[..., Server]) -> None:
    server = make_server(authorizer_class_name=STANDARD, super_users=ROOT, allow_everyone_if_no_acl_found="true")
    world = World(server)
    world.root.create_topic("t")
    anonymous = server.connect()
    assert anonymous.produce("t", b"x").error_code == 0
    world.allow(
        creation(TOPIC, "t", ALL, "User:*"),
        creation(TOPIC, "t", WRITE, "User:*", host="127.0.0.1", permission_type=Permission.DENY),
    )
    assert anonymous.produce("t", b"x").error_code == NO_TOPIC
    anonymous.channel.client_host = "10.0.0.1"
    assert anonymous.produce("t", b"x").error_code == 0


def test_acl_changes_are_audited_with_the_principal(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=AUDIT_LOGGER)
    world.allow(creation(TOPIC, "t", READ))
    world.revoke()
    lines = [record.getMessage() for record in caplog.records if record.name == AUDIT_LOGGER]
    changes = [line for line in lines if "resourceName=t" in line]
    assert [("adds" in line, "removes" in line) for line in changes] == [(True, False), (False, True)]
    assert all(line.startswith("Principal = User:root from host = 127.0.0.1 ") for line in changes)


# --- enforcement ----------------------------------------------------------------------------------------------------


@pytest.mark.promise("S2")
def test_topic_id_does_not_bypass_acls(world: World) -> None:
    topic_id = world.root.create_topic("secret")
    world.root.produce("secret", b"x")
    alice = world.alice
    assert alice.produce(topic_id, b"x").error_code == NO_TOPIC
    (found,) = fetched(alice.ask(fetch_request((topic_id, 0, 0)), 17)).values()
    assert (found.error_code, bytes(found.records or b"")) == (NO_TOPIC, b"")
    (topic,) = alice.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id)]), 12).topics
    assert (topic.error_code, topic.name, topic.partitions) == (NO_TOPIC, None, [])
    # An unknown topic id reveals nothing either.
    assert alice.produce(b"n" * 16, b"x").error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_transactional_id_does_not_bypass_acls(world: World) -> None:
    world.root.create_topic("t")
    world.root.create_topic("secret")
    world.allow(creation(TOPIC, "t", WRITE), creation(TXN, "mine", WRITE))
    for connection in (world.root, world.alice):
        connection.coordinate("mine", key_type=1)
    begin = InitProducerIdRequest(transactional_id="theirs", transaction_timeout_ms=1000)
    assert world.alice.ask(begin, 4).error_code == NO_TXN
    begin.transactional_id = "mine"
    one = world.alice.ask(begin, 4)
    assert one.error_code == 0
    batch = {"producer_id": one.producer_id, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    for name, topic, code in (("theirs", "t", NO_TXN), ("mine", "secret", NO_TOPIC)):
        # Version 12 adds the partition to the transaction (KIP-890).
        asked = produce_request(topic, b"x", **batch)
        asked.transactional_id = name
        assert world.alice.ask(asked, 12).responses[0].partition_responses[0].error_code == code
    asked = produce_request("t", b"x", **batch)  # without a name
    assert world.alice.ask(asked, 12).responses[0].partition_responses[0].error_code == NO_TXN
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="mine",
        v3_and_below_producer_id=one.producer_id,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("t", "secret")],
    )
    results = world.alice.ask(added, 3).results_by_topic_v3_and_below
    codes = {topic.name: topic.results_by_partition[0].partition_error_code for topic in results}
    assert codes == {"t": ErrorCode.OPERATION_NOT_ATTEMPTED, "secret": NO_TOPIC}


def test_group_id_does_not_bypass_acls(world: World) -> None:
    alice = world.alice
    world.root.coordinate("theirs")
    alice.ask(FindCoordinatorRequest(coordinator_keys=["theirs"], key_type=0), 4)
    join = JoinGroupRequest(
        group_id="theirs",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert alice.ask(join, 7).error_code == NO_GROUP
    assert alice.ask(HeartbeatRequest(group_id="theirs"), 4).error_code == NO_GROUP
    leave = LeaveGroupRequest(group_id="theirs", members=[MemberIdentity(member_id="m", group_instance_id=None)])
    assert alice.ask(leave, 5).error_code == NO_GROUP
    (group,) = alice.ask(DescribeGroupsRequest(groups=["theirs"]), 6).groups
    assert group.error_code == NO_GROUP
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="theirs", topics=None)])
    assert alice.ask(asked, 9).groups[0].error_code == NO_GROUP


def test_pattern_subscription_matches_describable_topics_only(world: World) -> None:
    world.root.create_topic("t1")
    world.root.create_topic("secret")
    world.allow(creation(GROUP, "g", READ), creation(TOPIC, "t", DESCRIBE, resource_pattern_type=PatternType.PREFIXED))
    world.alice.coordinate("g")

    def heartbeat(epoch: int, **fields: Any) -> Any:
        message = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m" * 22, member_epoch=epoch, **fields)
        response = world.alice.ask(message, 1)
        assert response.error_code == 0, response.error_message
        return response

    heartbeat(0, rebalance_timeout_ms=1000, subscribed_topic_regex=".*", topic_partitions=[])
    group = None

    def resolved() -> bool:
        nonlocal group
        (group,) = world.root.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
        return bool(group.members[0].target_assignment.topic_partitions)

    epoch = 1
    for _ in range(20):
        response = heartbeat(epoch)
        epoch = response.member_epoch
        if resolved():
            break
        world.server.turn()
    assert group is not None
    (member,) = group.members
    assert [topic.topic_name for topic in member.target_assignment.topic_partitions] == ["t1"]
    # A member is hidden from clients that may not describe its topics.
    world.allow(creation(GROUP, "g", DESCRIBE, "User:carol"))
    (hidden,) = world.client("User:carol").ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert (hidden.error_code, hidden.members) == (NO_TOPIC, [])


@pytest.mark.promise("S2")
def test_envelope_does_not_bypass_acls(world: World) -> None:
    controller = ControllerClient(world.server)
    controller.dispatcher.authorizer = world.server.broker.dispatcher.authorizer
    create = request(
        ApiKey.CREATE_TOPICS,
        7,
        CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]),
    )
    # Only a broker may forward for other clients.
    controller.channel.principal = ALICE
    assert controller.ask(create, pack_principal(ROOT)).error_code == NO_CLUSTER
    # A broker forwards for its client, with the client's permissions.
    world.allow(creation(ResourceType.CLUSTER, "kafka-cluster", AclOperation.CLUSTER_ACTION, "User:broker"))
    controller.channel.principal = "User:broker"
    response = controller.ask(create, pack_principal(ALICE))
    assert response.error_code == 0
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED.to_bytes(2, "big") in bytes(response.response_data)
    assert world.server.broker.contexts.admin.metadata.image.topic("t") is None
    assert controller.ask(create, pack_principal(ROOT)).error_code == 0
    assert world.server.broker.contexts.admin.metadata.image.topic("t") is not None


def test_a_fetch_session_ends_with_the_acl_that_opened_it(world: World) -> None:
    world.root.create_topic("t")
    world.root.produce("t", b"x")
    world.allow(creation(TOPIC, "t", READ))
    first = world.alice.ask(fetch_request(("t", 0, 0), session=(0, 0)), 12)
    assert fetched(first)["t", 0].records
    session = first.session_id
    assert session
    # Nothing is new: the partition becomes idle, and the next request waits.
    quiet = world.alice.ask(fetch_request(("t", 0, 1), session=(session, 1)), 12)
    assert not [found.error_code for found in fetched(quiet).values() if found.error_code]
    world.alice.send(fetch_request(session=(session, 2), max_wait_ms=60_000), 12)
    assert not world.alice.channel.answers
    world.revoke()
    answer = world.alice.answer()
    assert fetched(answer)["t", 0].error_code == NO_TOPIC
    world.root.produce("t", b"secret")
    for epoch in (3, 4):
        found = fetched(world.alice.ask(fetch_request(session=(session, epoch)), 12))["t", 0]
        assert (found.error_code, found.records or b"") == (NO_TOPIC, b"")
    world.allow(creation(TOPIC, "t", READ))
    assert fetched(world.alice.ask(fetch_request(session=(session, 5)), 12))["t", 0].records


def test_fetch_as_a_follower_needs_cluster_action(world: World) -> None:
    world.root.create_topic("t")
    world.root.produce("t", b"x")
    world.allow(creation(TOPIC, "t", READ))
    found = fetched(world.alice.ask(fetch_request(("t", 0, 0), replica_id=2), 12))["t", 0]
    assert (found.error_code, bytes(found.records or b"")) == (NO_TOPIC, b"")
