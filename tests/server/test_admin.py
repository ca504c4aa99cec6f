"""Admin requests: they park until committed in the metadata log, and are visible to all clients afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.alter_configs import (
    AlterableConfig as ReplacedConfig,
)
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
)
from ottla.protocol.messages.alter_configs import (
    AlterConfigsResource as ReplacedResource,
)
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from .harness import Connection, Server, fetch_request, fetched

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1


def alter(client: Connection, kind: int, name: str, *changes: tuple[str, int, str | None], version: int = 1) -> int:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    response = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), version)
    return int(response.responses[0].error_code)


def described(client: Connection, kind: int, name: str, version: int = 4) -> dict[str, tuple[str | None, int]]:
    """Name to (value, source)."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name)
    (result,) = client.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), version).results
    assert result.error_code == 0, result.error_message
    return {config.name: (config.value, config.config_source) for config in result.configs}


def test_dynamic_settings_take_effect_while_the_broker_runs(server: Server, client: Connection) -> None:
    client.create_topic("before")
    seen: list[int] = []
    server.broker.follow_config(lambda config: seen.append(config.get_int("max.connections")))
    changes = {
        "max.connections": "7",
        "producer.id.expiration.ms": "60000",
        "group.consumer.assignment.interval.ms": "5",
    }
    assert alter(client, BROKER, "", *((name, SET, value) for name, value in changes.items())) == 0
    client.create_topic("after")
    assert seen == [2**31 - 1, 7]
    for topic in ("before", "after"):
        partition = server.broker.parts.replicas.find(topic, 0)
        assert partition is not None
        assert partition.log.producer_expiration_ms == 60_000
    assert server.broker.parts.groups.shards.config.group_consumer_assignment_interval_ms == 5
    assert alter(client, BROKER, "", *((name, DELETE, None) for name in changes)) == 0
    assert seen[-1] == 2**31 - 1
    assert server.broker.parts.groups.shards.config.group_consumer_assignment_interval_ms == 1000


def test_unsupported_configs_are_kept_and_unknown_ones_sensitive(server: Server, client: Connection) -> None:
    assert alter(client, BROKER, "", ("num.io.threads", SET, "9"), ("plugin.of.mine", SET, "secret")) == 0
    server.restart()
    client = server.connect()
    assert described(client, BROKER, "")["num.io.threads"] == ("9", 3)
    for name in ("", "1"):
        assert described(client, BROKER, name)["plugin.of.mine"] == (None, 3)
    assert alter(client, BROKER, "", ("plugin.of.mine", DELETE, None)) == 0
    assert "plugin.of.mine" not in described(client, BROKER, "")


@pytest.mark.parametrize("version", range(2, 8))
def test_created_topic_is_visible_at_once(client: Connection, version: int) -> None:
    topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
    assert not client.send(CreateTopicsRequest(topics=[topic]), version), "waits for the metadata log"
    (result,) = client.answer().topics
    assert result.error_code == 0
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert result.configs
    assert client.produce("t", b"a", partition=2).error_code == 0
    (again,) = client.ask(CreateTopicsRequest(topics=[topic]), version).topics
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_creation_is_refused_item_by_item(client: Connection) -> None:
    topics = [
        CreatableTopic(name="good", num_partitions=-1, replication_factor=-1),
        CreatableTopic(name="b/d", num_partitions=1, replication_factor=1),
        CreatableTopic(name="two", num_partitions=1, replication_factor=2),
        CreatableTopic(name="none", num_partitions=0, replication_factor=1),
    ]
    response = client.ask(CreateTopicsRequest(topics=topics), 5)
    assert {topic.name: topic.error_code for topic in response.topics} == {
        "good": 0,
        "b/d": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "two": ErrorCode.INVALID_REPLICATION_FACTOR,
        "none": ErrorCode.INVALID_PARTITIONS,
    }
    dry = CreateTopicsRequest(topics=[CreatableTopic(name="dry", num_partitions=1, replication_factor=1)])
    dry.validate_only = True
    assert client.ask(dry, 5).topics[0].error_code == 0
    assert [topic.name for topic in client.ask(MetadataRequest(topics=None), 9).topics] == ["good"]


def test_requests_of_two_clients_take_effect_in_order(server: Server) -> None:
    first, second = server.connect(), server.connect()
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    first.send(CreateTopicsRequest(topics=[topic]), 5)
    second.send(CreateTopicsRequest(topics=[topic]), 5)
    assert first.answer().topics[0].error_code == 0
    assert second.answer().topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_deleted_with_its_data(server: Server, client: Connection, version: int) -> None:
    old_id = client.create_topic("t")
    client.produce("t", b"a")
    if version >= 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=old_id)])
    else:
        request = DeleteTopicsRequest(topic_names=["t"])
    assert client.ask(request, version).responses[0].error_code == 0
    assert client.produce("t", b"a").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce(old_id, b"a").error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert not (server.directory / "data" / "t-0").exists()
    assert client.create_topic("t") != old_id
    assert client.produce("t", b"b").base_offset == 0


def test_deleting_missing_topics_fails(client: Connection) -> None:
    response = client.ask(DeleteTopicsRequest(topic_names=["nope"]), 5)
    assert response.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added(client: Connection, version: int) -> None:
    client.create_topic("t")
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=4)])
    assert client.ask(request, version).results[0].error_code == 0
    assert client.produce("t", b"a", partition=3).error_code == 0
    assert client.ask(request, version).results[0].error_code == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("version", [0, 1])
def test_topic_settings_take_effect_at_once(server: Server, client: Connection, version: int) -> None:
    client.create_topic("t")
    assert alter(client, TOPIC, "t", ("max.message.bytes", SET, "150"), version=version) == 0
    assert client.produce("t", b"x" * 200).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert described(client, TOPIC, "t")["max.message.bytes"] == ("150", 1)
    assert alter(client, TOPIC, "t", ("max.message.bytes", DELETE, None), version=version) == 0
    assert client.produce("t", b"x" * 200).error_code == 0
    assert alter(client, TOPIC, "t", ("retention.ms", SET, "soon"), version=version) == ErrorCode.INVALID_CONFIG
    assert alter(client, TOPIC, "nope", ("retention.ms", SET, "1")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_settings_are_replaced_as_a_whole(client: Connection) -> None:
    client.create_topic("t", retention_ms="1000", segment_ms="2000")
    for version in range(3):
        configs = [ReplacedConfig(name="retention.ms", value="77")]
        resource = ReplacedResource(resource_type=TOPIC, resource_name="t", configs=configs)
        response = client.ask(AlterConfigsRequest(resources=[resource]), version)
        assert response.responses[0].error_code == 0
    configs_now = described(client, TOPIC, "t")
    assert configs_now["retention.ms"] == ("77", 1)
    assert configs_now["segment.ms"][1] != 1


def test_dynamic_broker_settings_reach_topics_and_survive(make_server: Callable[..., Server]) -> None:
    server = make_server()
    client = server.connect()
    client.create_topic("t")
    assert alter(client, BROKER, "", ("message.max.bytes", SET, "150")) == 0
    assert client.produce("t", b"x" * 200).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert described(client, BROKER, "1")["message.max.bytes"] == ("150", 3)
    server.restart()
    client = server.connect()
    assert client.produce("t", b"x" * 200).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(client, BROKER, "", ("message.max.bytes", DELETE, None)) == 0
    assert client.produce("t", b"x" * 200).error_code == 0
    assert alter(client, BROKER, "1", ("node.id", SET, "5")) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_are_described(client: Connection, version: int) -> None:
    client.create_topic("t", cleanup_policy="compact")
    topic = described(client, TOPIC, "t", version)
    assert topic["cleanup.policy"][0] == "compact"
    assert topic["retention.ms"] == ("604800000", 5)
    assert "log.dirs" in described(client, BROKER, "1", version)


def test_config_resources_are_listed(client: Connection) -> None:
    client.create_topic("t")
    response = client.ask(ListConfigResourcesRequest(resource_types=[]), 1)
    assert {(item.resource_type, item.resource_name) for item in response.config_resources} == {
        (TOPIC, "t"),
        (BROKER, "1"),
        (8, "1"),
    }
    only = client.ask(ListConfigResourcesRequest(resource_types=[TOPIC]), 1)
    assert [item.resource_name for item in only.config_resources] == ["t"]
    assert client.ask(ListConfigResourcesRequest(), 0).config_resources == []
    unknown = client.ask(ListConfigResourcesRequest(resource_types=[99]), 1)
    assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", range(3))
def test_features_are_only_finalized_where_they_work(client: Connection, version: int) -> None:
    def update(feature: str, level: int) -> int:
        updates = [FeatureUpdateKey(feature=feature, max_version_level=level)]
        response = client.ask(UpdateFeaturesRequest(feature_updates=updates), version)
        codes = [response.error_code, *(result.error_code for result in response.results)]
        return int(max(codes, key=abs))

    assert update("metadata.version", 25) == 0
    assert update("metadata.version", 99) == ErrorCode.INVALID_UPDATE_VERSION
    assert update("transaction.version", 2) == 0
    assert update("transaction.version", 3) == ErrorCode.INVALID_UPDATE_VERSION


def test_a_client_that_leaves_does_not_stop_its_request(server: Server) -> None:
    leaving, staying = server.connect(), server.connect()
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    assert not leaving.send(CreateTopicsRequest(topics=[topic]), 5)
    leaving.disconnect()
    assert staying.ask(CreateTopicsRequest(topics=[topic]), 5).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert leaving.channel.answers == []
    assert fetched(staying.ask(fetch_request(("t", 0, 0)), 12))[("t", 0)].error_code == 0


@pytest.mark.parametrize("version", range(1, 4))
def test_acl_requests_need_an_authorizer(client: Connection, version: int) -> None:
    described = client.ask(DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), version)
    assert (described.error_code, described.error_message) == (
        ErrorCode.SECURITY_DISABLED,
        "No Authorizer is configured on the broker",
    )
    assert described.resources == []
    creations = [AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", operation=3)] * 2
    created = client.ask(CreateAclsRequest(creations=creations), version).results
    assert [result.error_code for result in created] == [ErrorCode.SECURITY_DISABLED] * 2
    deleted = client.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=2)]), version)
    assert [result.error_code for result in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_is_already_in_the_one_directory(server: Server, client: Connection, version: int) -> None:
    client.create_topic("t", partitions=2)
    here = server.broker.contexts.admin.config.log_dirs[0]
    named = {"t": [0, 1, 9], "nowhere": [0]}
    topics = [AlterReplicaLogDirTopic(name=name, partitions=partitions) for name, partitions in named.items()]
    for path, codes in (
        (here, [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ("/elsewhere", [ErrorCode.LOG_DIR_NOT_FOUND] * 4),
    ):
        dirs = [AlterReplicaLogDir(path=path, topics=topics)]
        results = client.ask(AlterReplicaLogDirsRequest(dirs=dirs), version).results
        assert [topic.topic_name for topic in results] == ["t", "nowhere"]
        assert [partition.error_code for topic in results for partition in topic.partitions] == codes


def test_the_producers_of_a_partition(client: Connection) -> None:
    client.create_topic("t", partitions=2)
    client.produce("t", b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=0)
    client.produce("t", b"c")
    named = {"t": [0, 1, 0, 5], "nowhere": [0]}
    topics = [DescribeProducersTopic(name=name, partition_indexes=indexes) for name, indexes in named.items()]
    of_t, of_nowhere = client.ask(DescribeProducersRequest(topics=topics), 0).topics
    first, second, again, missing = of_t.partitions
    assert [(p.producer_id, p.producer_epoch, p.last_sequence) for p in first.active_producers] == [(7, 3, 1)]
    (producer,) = first.active_producers
    assert (producer.last_timestamp, producer.coordinator_epoch) == (1_700_000_000_001, -1)
    assert producer.current_txn_start_offset == -1
    assert (second.error_code, second.active_producers) == (0, [])
    assert again.error_code == ErrorCode.INVALID_REQUEST, "an answer may be large, so it is given once"
    for unknown in (missing, *of_nowhere.partitions):
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (missing.error_message, of_nowhere.partitions[0].error_message) == (
        None,
        "This server does not host this topic-partition.",
    )
