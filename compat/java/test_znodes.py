"""Ottla's codecs reproduce the znodes of Apache Kafka 3.9 byte for byte, and read them as its cluster."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from simulation.zookeeper import SimZooKeeper
from zookeeper_tree import KafkaOnZooKeeper

from ottla.client.admin.quotas import alter_client_quotas
from ottla.client.wire.connection import Connection
from ottla.common.config.config_def import ConfigResourceType
from ottla.metadata.delta import MetadataChanges, MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.image import ConfigResource as Resource
from ottla.protocol.znodes import brokers, paths
from ottla.protocol.znodes.operations import Create, Operation, Znode
from ottla.zookeeper.batches import batches
from ottla.zookeeper.reading import Cluster, read_cluster
from ottla.zookeeper.writing import TreeWriter, registration

ACLS = [
    AclBinding(ResourceType.TOPIC, "t", pattern, "User:ann", "*", AclOperation.READ, AclPermissionType.ALLOW)
    for pattern in (ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED)
]
LIMITS: list[tuple[list[tuple[str, str | None]], dict[str, float | None]]] = [
    ([("user", "ann b")], {"producer_byte_rate": 1024.0, "request_percentage": 12.5}),
    ([("user", None), ("client-id", "app")], {"consumer_byte_rate": 2048.0}),
    ([("client-id", None)], {"request_percentage": 10.0}),
    ([("ip", "127.0.0.9")], {"connection_creation_rate": 7.0}),
]
UNORDERED = ("/config/", "/kafka-acl", "/brokers/topics/u.v_w-x")
"""Below these paths Java's hash order determines the first of several names, ACLs or partitions."""


@pytest.fixture(scope="module")
def tree(kafka_of: Callable[[str], str]) -> dict[str, Znode]:
    """The znodes of a broker with topics, configs and other data of every kind."""
    with KafkaOnZooKeeper(kafka_of("3.9")) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        topics = [
            NewTopic("t", 3, 1, config={"retention.ms": "86400000"}),
            NewTopic("u.v_w-x", 12, 1),
            NewTopic("gone", 1, 1),
        ]
        settle(admin.create_topics(topics))
        settle(admin.delete_topics(["gone"]))
        settings = [("TOPIC", "t", "max.message.bytes"), ("BROKER", "1", "log.cleaner.threads")]
        for kind, name, setting in settings:
            entry = ConfigEntry(setting, "2", incremental_operation=AlterConfigOpType.SET)
            settle(admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=[entry])]))
        settle(admin.create_acls(ACLS))
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        settle(admin.alter_user_scram_credentials([UserScramCredentialUpsertion("ann b", credential, b"secret")]))
        host, port = kafka.bootstrap_servers.split(":")
        connection = Connection(host, int(port), client_id="test", timeout_s=30, software_version="0")
        for entity, limits in LIMITS:
            alter_client_quotas(connection, entity, limits)
        connection.close()
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "log_level": 0})
        producer.produce("t", b"x")
        assert producer.flush(30) == 0
        while "/admin/delete_topics/gone" in (found := kafka.tree()):  # completed after the response, last of all
            pass
        return found


def settle(futures: dict) -> None:
    for future in futures.values():
        future.result(30)


def read(tree: dict[str, Znode]) -> Cluster:
    return read_cluster(tree, lambda _name: pytest.fail("every topic has an id"))


def image_of(cluster: Cluster) -> tuple[MetadataImage, MetadataChanges]:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in cluster.records:
        delta.replay(record.message)
    return delta.apply(0, 1)


def test_tree_is_read_as_the_cluster(tree: dict[str, Znode]) -> None:
    cluster = read(tree)
    image, _ = image_of(cluster)
    assert {name: len(topic.partitions) for name, topic in image.topics.items()} == {"t": 3, "u.v_w-x": 12}
    assert cluster.repairs == []
    partition = image.topics["t"].partitions[0]
    assert (partition.replicas, partition.isr, partition.leader, partition.partition_epoch) == ((1,), (1,), 1, 0)
    assert image.topic_configs("t") == {"retention.ms": "86400000", "max.message.bytes": "2"}
    assert image.configs[Resource(ConfigResourceType.BROKER, "1")] == {"log.cleaner.threads": "2"}
    limits = {tuple(sorted(entity)): dict(limits) for entity, limits in LIMITS}
    assert {entity: dict(values) for entity, values in image.client_quotas.items()} == limits
    assert list(image.scram_credentials) == [("ann b", 1)]
    assert sorted(acl.pattern_type for acl in image.acls.values()) == [3, 4]
    assert image.next_producer_id == 1000
    assert (image.brokers[1].rack, image.brokers[1].endpoints[0].listener_name) == ("r1", "PLAINTEXT")
    assert image.brokers[1].broker_epoch == tree["/brokers/ids/1"].created


def test_written_tree_equals_that_of_apache_kafka(tree: dict[str, Znode]) -> None:
    """The whole cluster written to an empty tree has the same paths, bytes and state versions."""
    image, changes = image_of(read(tree))
    server = SimZooKeeper()
    session = server.connect(6000)
    server.multi(session, [Create(paths.CONTROLLER_EPOCH, tree[paths.CONTROLLER_EPOCH].data)])
    begun: dict[str, Operation] = {}
    for path in paths.PERSISTENT_PATHS:
        begun.update({each: Create(each, b"") for each in (*paths.parents(path), path)})
    server.multi(session, list(begun.values()))
    writer = TreeWriter(server.tree(), 1, 1)
    for call in batches(writer.groups(EMPTY_IMAGE, image, changes), 0):
        server.multi(session, call)
    born = brokers.decode_broker("", tree["/brokers/ids/1"].data).timestamp_ms
    server.multi(session, [registration(image.brokers[1], born)])
    written = {path: node for path, node in server.tree().items() if "_change" not in path}
    assert not [path for path in written if path not in tree]
    for path, node in written.items():
        theirs = tree[path]
        if path.startswith(UNORDERED) and node.data:
            assert plain(json.loads(node.data)) == plain(json.loads(theirs.data)), path
        else:
            assert node.data == theirs.data, path
        if path.endswith("/state"):
            assert node.version == theirs.version
    missing = [path for path in tree if path not in written and tree[path].data and "_change" not in path]
    assert sorted(missing) == ["/cluster/id", "/controller", "/feature"]


def plain(content: object) -> object:
    """Returns the content with sorted lists."""
    if isinstance(content, dict):
        return {key: plain(value) for key, value in content.items()}
    return sorted(content, key=str) if isinstance(content, list) else content


def test_broker_registration_equals_that_of_apache_kafka(tree: dict[str, Znode]) -> None:
    claim = brokers.decode_controller("", tree[paths.CONTROLLER].data)
    assert brokers.encode_controller(claim) == tree[paths.CONTROLLER].data
    assert (claim.broker_id, tree[paths.CONTROLLER].owner) == (1, tree["/brokers/ids/1"].owner)
    cluster_id = brokers.decode_cluster_id("", tree[paths.CLUSTER_ID].data)
    assert len(cluster_id) == 22
    assert brokers.encode_cluster_id(cluster_id) == tree[paths.CLUSTER_ID].data
    assert brokers.encode_features(brokers.decode_features("", tree[paths.FEATURE].data)) == tree[paths.FEATURE].data
    assert set(paths.PERSISTENT_PATHS) <= set(tree)
