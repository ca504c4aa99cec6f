"""API declarations: one for each listener that serves the API, equal to Apache Kafka's, and effective."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

import pytest

import ottla.server.handlers
from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import ANONYMOUS, AclOperation, ResourceType
from ottla.protocol.error_codes import compile_error_codes
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredEntity,
    AlterQuotaOperation,
    AlterQuotasEntry,
)
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.registry import API
from ottla.protocol.schema import ArrayType, Primitive, schema_of
from ottla.security.authorizer import StandardAuthorizer
from ottla.server.handlers.admin.apis import ADMIN_APIS
from ottla.server.handlers.data.apis import DATA_APIS
from ottla.server.handlers.groups.apis import GROUP_APIS
from ottla.server.handlers.quorum.administration import QUORUM_ADMIN_APIS
from ottla.server.handlers.quorum.apis import QUORUM_APIS
from ottla.server.handlers.share.apis import SHARE_APIS
from ottla.server.handlers.share.partition_apis import SHARE_PARTITION_APIS
from ottla.server.handlers.telemetry.apis import TELEMETRY_APIS
from ottla.server.handlers.transactions.apis import TRANSACTION_APIS
from ottla.server.requests.api import Api, ApiRow, Listeners
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.dispatch import RequestDispatcher
from ottla.server.wiring.apis import broker_apis

from .harness import Connection, Server

ROOMS: dict[str, tuple[ApiRow[Any], ...]] = {
    "admin": ADMIN_APIS,
    "data": DATA_APIS,
    "groups": GROUP_APIS,
    "quorum": (*QUORUM_APIS, *QUORUM_ADMIN_APIS),
    "share": (*SHARE_APIS, *SHARE_PARTITION_APIS),
    "telemetry": TELEMETRY_APIS,
    "transactions": TRANSACTION_APIS,
}

FACTS = """
Produce | broker | - | WRITE TOPIC, WRITE TRANSACTIONAL_ID
Fetch | broker | - | READ TOPIC, CLUSTER_ACTION CLUSTER
ListOffsets | broker | - | DESCRIBE TOPIC
Metadata | broker | - | DESCRIBE TOPIC, CREATE CLUSTER, CREATE TOPIC
OffsetCommit | broker | READ GROUP group_id | READ TOPIC
OffsetFetch | broker | - | DESCRIBE GROUP, DESCRIBE TOPIC
FindCoordinator | broker | - | DESCRIBE GROUP, DESCRIBE TRANSACTIONAL_ID
JoinGroup | broker | READ GROUP group_id | -
Heartbeat | broker | READ GROUP group_id | -
LeaveGroup | broker | READ GROUP group_id | -
SyncGroup | broker | READ GROUP group_id | -
DescribeGroups | broker | - | DESCRIBE GROUP
ListGroups | broker | - | DESCRIBE CLUSTER, DESCRIBE GROUP
SaslHandshake | both | - | -
ApiVersions | both | - | -
CreateTopics | forwarded | - | CREATE CLUSTER, CREATE TOPIC, DESCRIBE_CONFIGS TOPIC
DeleteTopics | forwarded | - | DELETE CLUSTER, DELETE TOPIC, DESCRIBE TOPIC
DeleteRecords | broker | - | DELETE TOPIC
InitProducerId | broker | - | WRITE TRANSACTIONAL_ID, IDEMPOTENT_WRITE CLUSTER, WRITE TOPIC
AddPartitionsToTxn | broker | - | WRITE TRANSACTIONAL_ID, WRITE TOPIC, CLUSTER_ACTION CLUSTER
AddOffsetsToTxn | broker | WRITE TRANSACTIONAL_ID transactional_id | READ GROUP
EndTxn | broker | WRITE TRANSACTIONAL_ID transactional_id | -
WriteTxnMarkers | broker* | - | ALTER CLUSTER, CLUSTER_ACTION CLUSTER
SaslAuthenticate | both | - | -
OffsetForLeaderEpoch | broker | - | CLUSTER_ACTION CLUSTER, DESCRIBE TOPIC
DescribeAcls | both | DESCRIBE CLUSTER | -
CreateAcls | forwarded | ALTER CLUSTER | -
DeleteAcls | forwarded | ALTER CLUSTER | -
DescribeConfigs | both | - | DESCRIBE_CONFIGS CLUSTER, DESCRIBE_CONFIGS TOPIC, DESCRIBE_CONFIGS GROUP
AlterConfigs | forwarded | - | ALTER_CONFIGS CLUSTER, ALTER_CONFIGS TOPIC, ALTER_CONFIGS GROUP
AlterReplicaLogDirs | broker | ALTER CLUSTER | -
DescribeLogDirs | broker | DESCRIBE CLUSTER | -
CreateDelegationToken | forwarded | - | CREATE_TOKENS USER
RenewDelegationToken | forwarded | - | -
ExpireDelegationToken | forwarded | - | -
DescribeDelegationToken | broker | - | DESCRIBE DELEGATION_TOKEN, DESCRIBE_TOKENS USER
CreatePartitions | forwarded | - | ALTER TOPIC
DeleteGroups | broker | - | DELETE GROUP
ElectLeaders | forwarded | ALTER CLUSTER | -
IncrementalAlterConfigs | forwarded | - | ALTER_CONFIGS CLUSTER, ALTER_CONFIGS TOPIC, ALTER_CONFIGS GROUP
AlterPartitionReassignments | forwarded | ALTER CLUSTER | -
ListPartitionReassignments | forwarded | DESCRIBE CLUSTER | -
OffsetDelete | broker | DELETE GROUP group_id | READ TOPIC
DescribeClientQuotas | broker | DESCRIBE_CONFIGS CLUSTER | -
AlterClientQuotas | forwarded | ALTER_CONFIGS CLUSTER | -
DescribeUserScramCredentials | broker | DESCRIBE CLUSTER | -
AlterUserScramCredentials | forwarded | ALTER CLUSTER | -
Vote | controller* | CLUSTER_ACTION CLUSTER | -
BeginQuorumEpoch | controller* | CLUSTER_ACTION CLUSTER | -
EndQuorumEpoch | controller* | CLUSTER_ACTION CLUSTER | -
Fetch | controller* | CLUSTER_ACTION CLUSTER | -
FetchSnapshot | controller* | CLUSTER_ACTION CLUSTER | -
DescribeQuorum | forwarded* | DESCRIBE CLUSTER | -
AlterPartition | controller* | CLUSTER_ACTION CLUSTER | -
UpdateFeatures | forwarded | ALTER CLUSTER | -
Envelope | controller* | CLUSTER_ACTION CLUSTER | -
DescribeCluster | both | - | ALTER CLUSTER
DescribeProducers | broker | - | READ TOPIC
DescribeTransactions | broker | - | DESCRIBE TRANSACTIONAL_ID, DESCRIBE TOPIC
ListTransactions | broker | - | DESCRIBE TRANSACTIONAL_ID
BrokerRegistration | controller | CLUSTER_ACTION CLUSTER | -
BrokerHeartbeat | controller | CLUSTER_ACTION CLUSTER | -
UnregisterBroker | forwarded | ALTER CLUSTER | -
UnregisterController | forwarded | ALTER CLUSTER | -
AllocateProducerIds | controller | CLUSTER_ACTION CLUSTER | -
ConsumerGroupHeartbeat | broker | READ GROUP group_id | DESCRIBE TOPIC
ConsumerGroupDescribe | broker | - | DESCRIBE GROUP, DESCRIBE TOPIC
ShareGroupHeartbeat | broker | READ GROUP group_id | DESCRIBE TOPIC
ShareGroupDescribe | broker | - | DESCRIBE GROUP, DESCRIBE TOPIC
DescribeShareGroupOffsets | broker | - | DESCRIBE GROUP, DESCRIBE TOPIC
AlterShareGroupOffsets | broker | READ GROUP group_id | READ TOPIC
DeleteShareGroupOffsets | broker | DELETE GROUP group_id | READ TOPIC
ControllerRegistration | controller | CLUSTER_ACTION CLUSTER | -
GetTelemetrySubscriptions | broker | - | -
PushTelemetry | broker | - | -
AssignReplicasToDirs | controller | CLUSTER_ACTION CLUSTER | -
ListConfigResources | broker | DESCRIBE_CONFIGS CLUSTER | -
DescribeTopicPartitions | broker | - | DESCRIBE TOPIC
ShareFetch | broker | - | READ GROUP, READ TOPIC
ShareAcknowledge | broker | - | READ GROUP, READ TOPIC
AddRaftVoter | forwarded* | ALTER CLUSTER | -
RemoveRaftVoter | forwarded* | ALTER CLUSTER | -
TxnOffsetCommit | broker | WRITE TRANSACTIONAL_ID transactional_id | READ GROUP, READ TOPIC
UpdateRaftVoter | controller* | CLUSTER_ACTION CLUSTER | -
InitializeShareGroupState | broker* | CLUSTER_ACTION CLUSTER | -
ReadShareGroupState | broker* | CLUSTER_ACTION CLUSTER | -
WriteShareGroupState | broker* | CLUSTER_ACTION CLUSTER | -
DeleteShareGroupState | broker* | CLUSTER_ACTION CLUSTER | -
ReadShareGroupStateSummary | broker* | CLUSTER_ACTION CLUSTER | -
"""
"""As in Apache Kafka's KafkaApis and ControllerApis: the listener ("forwarded" by brokers to the controller, "*"
never throttled), the permission of the whole request, and those of single items."""


def rows() -> list[ApiRow[Any]]:
    return [row for room in ROOMS.values() for row in room]


def table_line(row: ApiRow[Any]) -> str:
    """A declaration as a line of the table."""
    where = {Listeners.BROKER: "broker", Listeners.CONTROLLER: "controller", Listeners.BOTH: "both"}[row.listeners]
    api = row.api
    if getattr(api, "forwarded", False):
        assert row.listeners is Listeners.BOTH
        where = "forwarded"
    needs = "-" if api.needs is None else words(api.needs)
    items = ", ".join(map(words, api.item_needs)) or "-"
    return " | ".join((API[row.key].name, where + ("" if row.throttled else "*"), needs, items))


def words(need: RequiredPermission) -> str:
    return f"{need.operation.name} {need.resource_type.name} {need.attribute}".strip()


def test_api_permissions_match_apache_kafka() -> None:
    assert sorted(map(table_line, rows())) == sorted(FACTS.strip().splitlines())


def test_request_permission_names_a_request_attribute() -> None:
    for row in rows():
        needs = row.api.needs
        if needs is not None and needs.attribute:
            assert needs.attribute in [field.name for field in schema_of(API[row.key].request).fields]


@pytest.mark.parametrize("listener", [Listeners.BROKER, Listeners.CONTROLLER])
def test_api_is_declared_once_per_listener(listener: Listeners) -> None:
    keys = [row.key for row in rows() if listener in row.listeners]
    assert len(keys) == len(set(keys))


def test_every_implemented_api_is_declared() -> None:
    assert {row.key for row in rows()} == set(API)


def test_every_handler_package_serves_all_its_apis() -> None:
    for name, table in ROOMS.items():
        package = import_module(f"{ottla.server.handlers.__name__}.{name}")
        declared = [
            value
            for module in pkgutil.iter_modules(package.__path__)
            for value in vars(import_module(f"{package.__name__}.{module.name}")).values()
            if isinstance(value, Api)
        ]
        assert set(map(id, declared)) == {id(row.api) for row in table}


def test_row_names_the_module_of_its_api() -> None:
    for room, table in ROOMS.items():
        for row in table:
            assert row.module.rpartition(".")[0] == f"{ottla.server.handlers.__name__}.{room}"
            assert row.api.key is row.key


# --- errors -----------------------------------------------------------------------------------------------------------


def with_an_error_everywhere(cls: type, codes: list[int]) -> Any:
    """A message with one item in every list and another code in every `error_code`, added to `codes`."""
    message = cls()
    for field in schema_of(cls).fields:
        kind = field.type.item if isinstance(field.type, ArrayType) else field.type
        if not isinstance(kind, Primitive):
            inner = with_an_error_everywhere(kind, codes)
            setattr(message, field.name, [inner] if isinstance(field.type, ArrayType) else inner)
        elif field.name == "error_code":
            codes.append(len(codes) + 1)
            setattr(message, field.name, codes[-1])
    return message


@pytest.mark.parametrize("spec", API.values(), ids=lambda spec: spec.name)
def test_every_error_code_of_a_response_is_found(spec: Any) -> None:
    codes: list[int] = []
    message = with_an_error_everywhere(spec.response, codes)
    find = compile_error_codes(spec.response)
    assert find(message) == codes
    assert codes
    assert find(spec.response()) == []


def test_errors_of_nested_items_are_counted(server: Server, client: Connection) -> None:
    quota = AlterQuotasEntry(
        entity=[AlteredEntity(entity_type="nonsense", entity_name="x")],
        ops=[AlterQuotaOperation(key="k", value=1.0)],
    )
    (entry,) = client.ask(AlterClientQuotasRequest(entries=[quota]), 1).entries
    election = ElectLeadersRequest(topic_partitions=[ElectLeadersTopic(topic="nope", partitions=[0, 1])])
    (topic,) = client.ask(election, 2).replica_election_results
    counter = "kafka_network_requestmetrics_errors_total"
    for request, codes in (
        ("AlterClientQuotas", [entry.error_code]),
        ("ElectLeaders", [each.error_code for each in topic.partition_result]),
    ):
        assert all(codes)
        assert server.counter(counter, request=request, error=ErrorCode(codes[0]).name) == len(codes)


def test_cached_leaderless_partition_is_counted_each_time(
    server: Server, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.server.handlers.admin import metadata

    client.create_topic("t", 2)
    described: list[object] = []
    topic_of = metadata._topic

    def leaderless(*arguments: Any) -> Any:
        described.append(arguments)
        topic = topic_of(*arguments)
        topic.partitions[1].error_code = ErrorCode.LEADER_NOT_AVAILABLE
        return topic

    monkeypatch.setattr(metadata, "_topic", leaderless)
    for _ in range(3):
        (topic,) = client.ask(MetadataRequest(topics=None), 12).topics
        assert topic.partitions[1].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert len(described) == 1
    counter = "kafka_network_requestmetrics_errors_total"
    assert server.counter(counter, request="Metadata", error="LEADER_NOT_AVAILABLE") == 3


# --- authorization ----------------------------------------------------------------------------------------------------


class Allowing(StandardAuthorizer):
    """An authorizer that allows a given set, and records its calls."""

    def __init__(self, *allowed: tuple[AclOperation, ResourceType, str]) -> None:
        self.allowed = allowed
        self.asked: list[tuple[str, str, AclOperation, ResourceType, str]] = []

    def allows(
        self,
        principal: str,
        client_host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        request: str,
        audit: bool = True,
    ) -> bool:
        self.asked.append((principal, client_host, operation, resource_type, name))
        return (operation, resource_type, name) in self.allowed

    def allows_any(
        self, principal: str, client_host: str, operation: AclOperation, resource_type: ResourceType, *, request: str
    ) -> bool:
        return any(each[:2] == (operation, resource_type) for each in self.allowed)


def guarded(server: Server, client: Connection, authorizer: Allowing) -> None:
    """Serve `client` by a dispatcher that uses `authorizer`."""
    contexts = server.broker.contexts
    dispatcher = RequestDispatcher(contexts.dispatcher, broker_apis(contexts), authorizer=authorizer)
    server.broker._dispatcher = dispatcher


def test_unauthorized_request_never_reaches_the_handler(server: Server, client: Connection) -> None:
    authorizer = Allowing((AclOperation.READ, ResourceType.GROUP, "mine"))
    guarded(server, client, authorizer)
    client.channel.principal = "User:alice"
    assert client.ask(HeartbeatRequest(group_id="other"), 4).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert client.ask(HeartbeatRequest(group_id="mine"), 4).error_code != ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert authorizer.asked == [
        ("User:alice", "127.0.0.1", AclOperation.READ, ResourceType.GROUP, group) for group in ("other", "mine")
    ]


def test_authorized_operations_are_the_requesters(server: Server, client: Connection) -> None:
    client.create_topic("t")
    guarded(
        server,
        client,
        Allowing(
            (AclOperation.DESCRIBE, ResourceType.TOPIC, "t"),
            (AclOperation.WRITE, ResourceType.TOPIC, "t"),
            (AclOperation.ALTER, ResourceType.CLUSTER, "kafka-cluster"),
            (AclOperation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster"),
        ),
    )
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")], include_topic_authorized_operations=True)
    for _ in range(2):
        (topic,) = client.ask(asked, 12).topics
        assert topic.topic_authorized_operations == 1 << AclOperation.DESCRIBE | 1 << AclOperation.WRITE
    cluster = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert cluster.cluster_authorized_operations == 1 << AclOperation.ALTER | 1 << AclOperation.DESCRIBE


def test_principal_is_anonymous_without_authentication(server: Server, client: Connection) -> None:
    authorizer = Allowing()
    guarded(server, client, authorizer)
    client.ask(HeartbeatRequest(group_id="g"), 4)
    assert authorizer.asked[0][0] == ANONYMOUS
