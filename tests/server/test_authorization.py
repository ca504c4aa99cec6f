"""Required permissions of each API, as in Apache Kafka's KafkaApis and ControllerApis: denied, and allowed.

Requests pass the dispatcher of a real broker; the test sets the permissions (`Allowing`). Requests that
are refused as a whole are APIs with `needs` (`test_apis.FACTS`); the others have a line in `TABLE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from ottla.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
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
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.protocol.registry import API, api_name
from ottla.protocol.schema import ArrayType, Primitive, schema_of
from ottla.server.requests.api import Listeners, SchemaApi
from ottla.server.requests.authorization import DENIED, NOT_REQUESTED
from ottla.server.requests.dispatch import RequestDispatcher
from ottla.server.wiring.apis import broker_apis, controller_apis

from .harness import Connection, Server, fetch_request, fetched, produce_request
from .share_groups import GROUP as SHARE_GROUP
from .share_groups import MemoryPersister, enable_share_groups, share_acknowledge, share_fetch
from .test_apis import Allowing, rows

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
)
TOPIC, GROUP, CLUSTER, TXN = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_TXN = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

Right = tuple[AclOperation, ResourceType, str]
CLUSTER_ACTION: Right = (AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)


class Line(NamedTuple):
    """One request, at one version, and sets of permissions, each of which is sufficient."""

    request: Callable[[bytes], Any]
    """From the id of the topic `t`."""
    version: int
    enough: tuple[frozenset[Right], ...]
    denied: dict[Right, ErrorCode]
    """The error if one of the permissions is all that is missing."""


def line(
    request: Callable[[bytes], Any], version: int, *needs: tuple[Right, ErrorCode], other: Right | None = None
) -> Line:
    """All of `needs`, in the order of the checks; `other` can replace the last."""
    rights = [right for right, _ in needs]
    enough = [frozenset(rights)]
    if other is not None:
        enough.append(frozenset([*rights[:-1], other]))
    return Line(request, version, tuple(enough), dict(needs))


def offset_commit(**topic: Any) -> OffsetCommitRequest:
    of_topic = OffsetCommitRequestTopic(**topic, partitions=[OffsetCommitRequestPartition(partition_index=0)])
    return OffsetCommitRequest(group_id="g", topics=[of_topic])


def txn_offset_commit(**topic: Any) -> TxnOffsetCommitRequest:
    of_topic = TxnOffsetCommitRequestTopic(**topic, partitions=[TxnOffsetCommitRequestPartition(partition_index=0)])
    return TxnOffsetCommitRequest(transactional_id="x", group_id="g", topics=[of_topic])


def offset_fetch(**topic: Any) -> OffsetFetchRequest:
    of_topic = OffsetFetchRequestTopics(**topic, partition_indexes=[0])
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[of_topic])])


def configs(request: Any, resource: Any, kind: ConfigResourceType, name: str) -> Callable[[bytes], Any]:
    return lambda _id: request(resources=[resource(resource_type=kind, resource_name=name)])


def configs_lines(request: Any, resource: Any, version: int, operation: AclOperation) -> list[Line]:
    return [
        line(configs(request, resource, kind, name), version, ((operation, *owner), code))
        for kind, name, owner, code in (
            (ConfigResourceType.TOPIC, "t", (TOPIC, "t"), NO_TOPIC),
            (ConfigResourceType.GROUP, "g", (GROUP, "g"), NO_GROUP),
            (ConfigResourceType.BROKER, "1", (CLUSTER, CLUSTER_NAME), NO_CLUSTER),
        )
    ]


def transactional(topic: str) -> Any:
    request = produce_request(topic, b"x", is_transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    request.transactional_id = "x"
    return request


TABLE: list[Line] = [
    line(lambda _: produce_request("t", b"x"), 12, ((WRITE, TOPIC, "t"), NO_TOPIC)),
    line(lambda _: produce_request("nowhere", b"x"), 12, ((WRITE, TOPIC, "nowhere"), NO_TOPIC)),
    line(lambda topic_id: produce_request(topic_id, b"x"), 13, ((WRITE, TOPIC, "t"), NO_TOPIC)),
    line(lambda _: transactional("t"), 12, ((WRITE, TOPIC, "t"), NO_TOPIC), ((WRITE, TXN, "x"), NO_TXN)),
    line(lambda _: fetch_request(("t", 0, 0)), 12, ((READ, TOPIC, "t"), NO_TOPIC)),
    line(lambda _: fetch_request(("nowhere", 0, 0)), 12, ((READ, TOPIC, "nowhere"), NO_TOPIC)),
    line(lambda topic_id: fetch_request((topic_id, 0, 0)), 17, ((READ, TOPIC, "t"), NO_TOPIC)),
    line(lambda _: fetch_request(("t", 0, 0), replica_id=5), 12, (CLUSTER_ACTION, NO_TOPIC)),
    line(
        lambda _: ListOffsetsRequest(
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
        ),
        7,
        ((DESCRIBE, TOPIC, "t"), NO_TOPIC),
    ),
    line(lambda _: MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12, ((DESCRIBE, TOPIC, "t"), NO_TOPIC)),
    line(
        lambda topic_id: MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id)]),
        12,
        ((DESCRIBE, TOPIC, "t"), NO_TOPIC),
    ),
    line(
        lambda _: MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True),
        12,
        ((DESCRIBE, TOPIC, "new"), NO_TOPIC),
        ((CREATE, TOPIC, "new"), NO_TOPIC),
        other=(CREATE, CLUSTER, CLUSTER_NAME),
    ),
    line(lambda _: offset_commit(name="t"), 9, ((READ, GROUP, "g"), NO_GROUP), ((READ, TOPIC, "t"), NO_TOPIC)),
    line(
        lambda topic_id: offset_commit(topic_id=topic_id),
        10,
        ((READ, GROUP, "g"), NO_GROUP),
        ((READ, TOPIC, "t"), NO_TOPIC),
    ),
    line(lambda _: offset_fetch(name="t"), 9, ((DESCRIBE, GROUP, "g"), NO_GROUP), ((DESCRIBE, TOPIC, "t"), NO_TOPIC)),
    line(
        lambda topic_id: offset_fetch(topic_id=topic_id),
        10,
        ((DESCRIBE, GROUP, "g"), NO_GROUP),
        ((DESCRIBE, TOPIC, "t"), NO_TOPIC),
    ),
    line(lambda _: FindCoordinatorRequest(key="g", key_type=0), 3, ((DESCRIBE, GROUP, "g"), NO_GROUP)),
    line(lambda _: FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4, ((DESCRIBE, GROUP, "g"), NO_GROUP)),
    line(lambda _: FindCoordinatorRequest(coordinator_keys=["x"], key_type=1), 4, ((DESCRIBE, TXN, "x"), NO_TXN)),
    line(lambda _: DescribeGroupsRequest(groups=["g"]), 5, ((DESCRIBE, GROUP, "g"), NO_GROUP)),
    line(lambda _: ConsumerGroupDescribeRequest(group_ids=["g"]), 1, ((DESCRIBE, GROUP, "g"), NO_GROUP)),
    line(
        lambda _: ConsumerGroupHeartbeatRequest(
            group_id="c",
            member_id="m" * 22,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        1,
        ((READ, GROUP, "c"), NO_GROUP),
        ((DESCRIBE, TOPIC, "t"), NO_TOPIC),
    ),
    line(
        lambda _: ShareGroupHeartbeatRequest(group_id="s", member_id="m", subscribed_topic_names=["t"]),
        1,
        ((READ, GROUP, "s"), NO_GROUP),
        ((DESCRIBE, TOPIC, "t"), NO_TOPIC),
    ),
    line(lambda _: ShareGroupDescribeRequest(group_ids=["none"]), 1, ((DESCRIBE, GROUP, "none"), NO_GROUP)),
    line(
        lambda _: DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id="s", topics=None)]
        ),
        1,
        ((DESCRIBE, GROUP, "s"), NO_GROUP),
    ),
    line(
        lambda _: AlterShareGroupOffsetsRequest(
            group_id="s",
            topics=[
                AlterShareGroupOffsetsRequestTopic(
                    topic_name="t", partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=0)]
                )
            ],
        ),
        0,
        ((READ, GROUP, "s"), NO_GROUP),
        ((READ, TOPIC, "t"), NO_TOPIC),
    ),
    line(
        lambda _: DeleteShareGroupOffsetsRequest(
            group_id="s", topics=[DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
        ),
        0,
        ((DELETE, GROUP, "s"), NO_GROUP),
        ((READ, TOPIC, "t"), NO_TOPIC),
    ),
    line(
        lambda _: CreateTopicsRequest(
            topics=[CreatableTopic(name="made", num_partitions=1, replication_factor=1)], validate_only=True
        ),
        4,
        ((CREATE, TOPIC, "made"), NO_TOPIC),
        other=(CREATE, CLUSTER, CLUSTER_NAME),
    ),
    line(
        lambda _: DeleteTopicsRequest(topic_names=["none"]),
        5,
        ((DELETE, TOPIC, "none"), NO_TOPIC),
        other=(DELETE, CLUSTER, CLUSTER_NAME),
    ),
    line(
        lambda _: DeleteTopicsRequest(topics=[DeleteTopicState(name="none")]),
        6,
        ((DELETE, TOPIC, "none"), NO_TOPIC),
        other=(DELETE, CLUSTER, CLUSTER_NAME),
    ),
    line(
        lambda _: DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])]
        ),
        2,
        ((DELETE, TOPIC, "t"), NO_TOPIC),
    ),
    line(
        lambda _: InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000),
        4,
        ((WRITE, TXN, "x"), NO_TXN),
    ),
    line(
        lambda _: InitProducerIdRequest(transactional_id=None),
        4,
        ((AclOperation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME), NO_CLUSTER),
        other=(WRITE, TOPIC, "whatever"),
    ),
    line(
        lambda _: AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        3,
        ((WRITE, TXN, "x"), NO_TXN),
        ((WRITE, TOPIC, "t"), NO_TOPIC),
    ),
    line(
        lambda _: AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id="x", topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])]
                )
            ]
        ),
        5,
        (CLUSTER_ACTION, NO_CLUSTER),
    ),
    line(
        lambda _: AddOffsetsToTxnRequest(transactional_id="x", group_id="g"),
        3,
        ((WRITE, TXN, "x"), NO_TXN),
        ((READ, GROUP, "g"), NO_GROUP),
    ),
    line(
        lambda _: txn_offset_commit(name="t"),
        5,
        ((WRITE, TXN, "x"), NO_TXN),
        ((READ, GROUP, "g"), NO_GROUP),
        ((READ, TOPIC, "t"), NO_TOPIC),
    ),
    line(
        lambda topic_id: txn_offset_commit(topic_id=topic_id),
        6,
        ((WRITE, TXN, "x"), NO_TXN),
        ((READ, GROUP, "g"), NO_GROUP),
        ((READ, TOPIC, "t"), NO_TOPIC),
    ),
    line(
        lambda _: OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=0)])]
        ),
        4,
        ((DESCRIBE, TOPIC, "t"), NO_TOPIC),
        other=CLUSTER_ACTION,
    ),
    *configs_lines(DescribeConfigsRequest, DescribeConfigsResource, 4, AclOperation.DESCRIBE_CONFIGS),
    *configs_lines(AlterConfigsRequest, AlterConfigsResource, 2, AclOperation.ALTER_CONFIGS),
    *configs_lines(IncrementalAlterConfigsRequest, IncrementalResource, 1, AclOperation.ALTER_CONFIGS),
    line(
        lambda _: CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3)], validate_only=True),
        3,
        ((ALTER, TOPIC, "t"), NO_TOPIC),
    ),
    line(lambda _: DeleteGroupsRequest(groups_names=["g"]), 2, ((DELETE, GROUP, "g"), NO_GROUP)),
    line(
        lambda _: OffsetDeleteRequest(
            group_id="g",
            topics=[OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
        ),
        0,
        ((DELETE, GROUP, "g"), NO_GROUP),
        ((READ, TOPIC, "t"), NO_TOPIC),
    ),
    line(
        lambda _: DescribeProducersRequest(topics=[DescribeProducersTopic(name="t", partition_indexes=[0])]),
        0,
        ((READ, TOPIC, "t"), NO_TOPIC),
    ),
    line(lambda _: DescribeTransactionsRequest(transactional_ids=["x"]), 0, ((DESCRIBE, TXN, "x"), NO_TXN)),
    line(
        lambda _: DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0, ((DESCRIBE, TOPIC, "t"), NO_TOPIC)
    ),
    line(
        lambda _: WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(producer_id=1, topics=[WritableTxnMarkerTopic(name="nowhere", partition_indexes=[0])])
            ]
        ),
        1,
        (CLUSTER_ACTION, NO_CLUSTER),
        other=(ALTER, CLUSTER, CLUSTER_NAME),
    ),
    line(
        lambda topic_id: share_fetch((topic_id, 0), epoch=0, max_wait_ms=0),
        2,
        ((READ, GROUP, SHARE_GROUP), NO_GROUP),
        ((READ, TOPIC, "t"), NO_TOPIC),
    ),
    line(lambda topic_id: share_acknowledge(topic_id, 0, [], epoch=1), 2, ((READ, GROUP, SHARE_GROUP), NO_GROUP)),
]


TOKENS = {"CreateDelegationToken", "DescribeDelegationToken"}
FILTERED = {"ListGroups", "ListTransactions", "DescribeCluster", *TOKENS}
"""APIs that omit items instead of refusing them, or that only a controller refuses: tested below; those of TOKENS,
which depend on the owner, in `test_delegation_tokens`."""


def name_of(message: Any) -> str:
    return next(spec.name for spec in API.values() if spec.request is type(message))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, bytes]]:
    """One broker for all lines: their effects do not change their permissions."""
    server = Server(tmp_path_factory.mktemp("authorization"), auto_create_topics_enable="true")
    client = server.connect()
    topic_id = client.create_topic("t")
    client.coordinate("g")
    client.coordinate("x", key_type=1)
    enable_share_groups(server, MemoryPersister())
    yield server, topic_id
    server.stop()
    server.loop.close()


def codes_with(world: tuple[Server, bytes], asked: Line, *rights: Right) -> set[int]:
    """The error codes in the response to a client with these permissions."""
    server, topic_id = world
    message = asked.request(topic_id)
    client = server.connect()
    client.channel.principal = "User:alice"
    server.broker.dispatcher.authorizer = Allowing(*rights)
    try:
        answer = client.ask(message, asked.version)
    finally:
        server.broker.dispatcher.authorizer = None
    return codes_in(answer)


def codes_in(message: Any) -> set[int]:
    """All error codes in a message, in any field."""
    codes: set[int] = set()
    for field in schema_of(type(message)).fields:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            codes.add(value)
        elif isinstance(field.type, ArrayType) and not isinstance(field.type.item, Primitive):
            codes.update(*map(codes_in, value or []))
    return codes - {0}


REFUSALS = set(DENIED.values())


def line_id(asked: Line) -> str:
    return f"{name_of(asked.request(bytes(16)))}-{asked.version}"


@pytest.mark.promise("S2")
@pytest.mark.parametrize("asked", TABLE, ids=line_id)
def test_allowed_items_are_served_and_others_refused(world: tuple[Server, bytes], asked: Line) -> None:
    for right, code in asked.denied.items():
        assert codes_with(world, asked, *(asked.enough[0] - {right})) == {code}
    nothing = codes_with(world, asked)
    assert nothing
    assert nothing <= set(asked.denied.values())
    # Last, since served requests may create the resource.
    for enough in asked.enough:
        assert not codes_with(world, asked, *enough) & REFUSALS


def test_every_api_with_rights_of_single_things_has_a_line() -> None:
    lined = {name_of(each.request(bytes(16))) for each in TABLE} | FILTERED
    assert {api_name(row.key) for row in rows() if row.api.item_needs} == lined
    unguarded = [
        api_name(row.key)
        for row in rows()
        if row.api.item_needs and isinstance(row.api, SchemaApi) and row.api.guard is None
    ]
    # Their handlers check permissions, since only they know the resource.
    in_handlers = {
        "AddPartitionsToTxn",
        "DescribeTopicPartitions",
        "Metadata",
        "ShareAcknowledge",
        "ShareFetch",
        "WriteTxnMarkers",
    }
    assert set(unguarded) == in_handlers | TOKENS


@pytest.mark.parametrize("row", [row for row in rows() if row.api.needs], ids=lambda row: api_name(row.key))
def test_refused_request_is_authorized_once(world: tuple[Server, bytes], row: Any) -> None:
    server, _ = world
    contexts = server.broker.contexts
    on_controller = row.listeners is Listeners.CONTROLLER
    served = controller_apis(contexts) if on_controller else broker_apis(contexts)
    if row.key not in {each.row.key for each in served}:
        pytest.skip("a single node has no such listener")
    authorizer = Allowing()
    dispatcher = RequestDispatcher(contexts.dispatcher, served, serves_controller=on_controller, authorizer=authorizer)
    normal, server.broker._dispatcher = server.broker._dispatcher, dispatcher
    try:
        spec = API[row.key]
        answer = server.connect().ask(spec.request(), spec.max_version)
    finally:
        server.broker._dispatcher = normal
    needs = row.api.needs
    name = getattr(spec.request(), needs.attribute) if needs.attribute else CLUSTER_NAME
    assert [each[2:] for each in authorizer.asked] == [(needs.operation, needs.resource_type, name)]
    assert codes_in(answer) <= {DENIED[needs.resource_type]}


# --- omitted items ----------------------------------------------------------------------------------------------------


def asking(server: Server, *rights: Right) -> Connection:
    """A client with these permissions, the only one that is checked."""
    client = server.connect()
    client.channel.principal = "User:alice"
    server.broker.dispatcher.authorizer = Allowing(*rights)
    return client


def test_lists_omit_items_without_describe(server: Server, client: Connection) -> None:
    topic_id = client.create_topic("t")
    client.create_topic("secret")
    for group in ("g", "hidden"):
        for topic in ("t", "secret"):
            commit = offset_commit(name=topic)
            commit.group_id = group
            client.coordinate(group)
            (committed,) = client.ask(commit, 8).topics
            assert committed.partitions[0].error_code == 0
    client.coordinate("x", "y", key_type=1)
    for transactional_id in ("x", "y"):
        begin = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
        assert client.ask(begin, 4).error_code == 0
    alice = asking(server, (DESCRIBE, TOPIC, "t"), (DESCRIBE, GROUP, "g"), (DESCRIBE, TXN, "x"))
    for version in (0, 1, 12):
        listed = alice.ask(MetadataRequest(topics=None if version else []), version)
        assert [topic.name for topic in listed.topics] == ["t"]
    pages = alice.ask(DescribeTopicPartitionsRequest(topics=[], response_partition_limit=10), 0)
    assert [topic.name for topic in pages.topics] == ["t"]
    assert [group.group_id for group in alice.ask(ListGroupsRequest(), 4).groups] == ["g"]
    states = alice.ask(ListTransactionsRequest(), 0).transaction_states
    assert [state.transactional_id for state in states] == ["x"]
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    (group,) = alice.ask(everything, 9).groups
    assert [topic.name for topic in group.topics] == ["t"]
    (group,) = alice.ask(everything, 10).groups
    assert [bytes(topic.topic_id) for topic in group.topics] == [topic_id]
    old = alice.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert [topic.name for topic in old.topics] == ["t"]
    manager = asking(server, (DESCRIBE, CLUSTER, CLUSTER_NAME))
    assert [group.group_id for group in manager.ask(ListGroupsRequest(), 4).groups] == ["g", "hidden"]


def test_unauthorized_items_of_a_request_are_refused(server: Server, client: Connection) -> None:
    client.create_topic("t")
    client.create_topic("secret")
    client.coordinate("g")
    alice = asking(server, (READ, TOPIC, "t"), (WRITE, TOPIC, "t"), (DESCRIBE, TOPIC, "t"), (DESCRIBE, GROUP, "g"))
    both = produce_request("t", b"x")
    both.topic_data += produce_request("secret", b"x").topic_data
    answers = {each.name: each.partition_responses[0] for each in alice.ask(both, 12).responses}
    assert {name: answer.error_code for name, answer in answers.items()} == {"t": 0, "secret": NO_TOPIC}
    found = fetched(alice.ask(fetch_request(("secret", 0, 0), ("t", 0, 0)), 12))
    assert found["t", 0].records
    assert found["secret", 0].error_code == NO_TOPIC
    assert not found["secret", 0].records
    names = [MetadataRequestTopic(name=name) for name in ("secret", "t", "nowhere")]
    topics = {topic.name: topic for topic in alice.ask(MetadataRequest(topics=names), 12).topics}
    assert {name: topic.error_code for name, topic in topics.items()} == {
        "t": 0,
        "secret": NO_TOPIC,
        "nowhere": NO_TOPIC,
    }
    # An existing resource and a missing one look the same.
    assert bytes(topics["secret"].topic_id) == bytes(topics["nowhere"].topic_id) == bytes(16)
    assert topics["secret"].partitions == []
    asked = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("t", "secret")],
            )
            for group in ("g", "hidden")
        ]
    )
    seen, hidden = alice.ask(asked, 9).groups
    assert {topic.name: topic.partitions[0].error_code for topic in seen.topics} == {"t": 0, "secret": NO_TOPIC}
    assert (hidden.group_id, hidden.error_code, hidden.topics) == ("hidden", NO_GROUP, [])


def test_refused_produce_with_acks_0_closes_the_connection(server: Server, client: Connection) -> None:
    client.create_topic("t")
    alice = asking(server)
    alice.send(produce_request("t", b"x", acks=0), 12)
    assert alice.channel.closed


def test_a_controller_is_described_to_administrators(server: Server) -> None:
    contexts = server.broker.contexts
    served = broker_apis(contexts)
    for rights, code in (((), NO_CLUSTER), (((ALTER, CLUSTER, CLUSTER_NAME),), ErrorCode.MISMATCHED_ENDPOINT_TYPE)):
        dispatcher = RequestDispatcher(
            contexts.dispatcher, served, serves_controller=True, authorizer=Allowing(*rights)
        )
        server.broker._dispatcher = dispatcher
        asked = DescribeClusterRequest(endpoint_type=2)
        assert server.connect().ask(asked, 1).error_code == code


def test_refusal_of_a_whole_request_names_its_items(server: Server) -> None:
    alice = asking(server)
    moved = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=3)])
    (topic,) = alice.ask(AlterPartitionReassignmentsRequest(topics=[moved]), 1).responses
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(3, NO_CLUSTER)]
    described = alice.ask(DescribeUserScramCredentialsRequest(users=[UserName(name="bob"), UserName(name="eve")]), 0)
    assert [each.error_code for each in described.results] == [NO_CLUSTER, NO_CLUSTER]


def test_transactional_id_without_permission_is_refused(server: Server) -> None:
    unknown = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=bytes(range(16)))], include_topic_authorized_operations=True
    )
    (topic,) = asking(server, (DESCRIBE, TOPIC, "")).ask(unknown, 12).topics
    assert topic.topic_authorized_operations == NOT_REQUESTED


def test_cluster_operations_are_shown_with_cluster_describe(server: Server) -> None:
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    alice = asking(server, (CREATE, CLUSTER, CLUSTER_NAME))
    assert alice.ask(asked, 1).cluster_authorized_operations == 0
    alice = asking(server, (CREATE, CLUSTER, CLUSTER_NAME), (DESCRIBE, CLUSTER, CLUSTER_NAME))
    assert alice.ask(asked, 1).cluster_authorized_operations == 1 << CREATE | 1 << DESCRIBE


def test_configs_of_a_new_topic_need_describe_configs(server: Server) -> None:
    create: Right = (CREATE, CLUSTER, CLUSTER_NAME)
    for rights, code in (((create,), NO_TOPIC), ((create, (AclOperation.DESCRIBE_CONFIGS, TOPIC, "b")), 0)):
        name = "b" if code == 0 else "a"
        asked = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=2, replication_factor=1)])
        (topic,) = asking(server, *rights).ask(asked, 7).topics
        assert topic.error_code == 0
        assert topic.topic_config_error_code == code
        assert topic.num_partitions == (-1 if code else 2)
        assert bool(topic.configs) is (code == 0)
