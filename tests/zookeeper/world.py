"""A controller on a simulated ZooKeeper: records in, operations out, and the result for readers of the tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from simulation.zookeeper import SimZooKeeper

from ottla.common.config.config_def import ConfigResourceType
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionImage, TopicImage
from ottla.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityData,
    TopicRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.operations import Check, Create, Operation, Znode
from ottla.zookeeper.batches import Group, batches
from ottla.zookeeper.reading import Cluster, read_cluster
from ottla.zookeeper.writing import TreeWriter

CONTROLLER_EPOCH = 7
GUARD = Check(paths.CONTROLLER_EPOCH, 0)
OLD_TOPIC_ID = b"o" * 16

TOPIC, BROKER, GROUP = (
    int(kind) for kind in (ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.GROUP)
)


def a_topic(name: str, count: int = 1, replicas: tuple[int, ...] = (1, 2)) -> list[object]:
    topic_id = id_of(name)
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(a_partition(name, index, replicas) for index in range(count)),
    ]


def a_partition(name: str, index: int, replicas: Iterable[int] = (1, 2)) -> PartitionRecord:
    replicas = list(replicas)
    return PartitionRecord(
        partition_id=index,
        topic_id=id_of(name),
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
    )


def id_of(name: str) -> bytes:
    return name.encode().ljust(16, b".")[:16]


def a_setting(kind: int, resource: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def a_limit(key: str, value: float, *, remove: bool = False, **parts: str | None) -> ClientQuotaRecord:
    entity = [QuotaEntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in parts.items()]
    return ClientQuotaRecord(entity=entity, key=key, value=value, remove=remove)


def an_acl(number: int, name: str = "t", pattern: int = 3) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=bytes([number] * 16),
        resource_type=2,
        resource_name=name,
        pattern_type=pattern,
        principal=f"User:{number}",
        host="*",
        operation=3,
        permission_type=3,
    )


def a_credential(name: str, mechanism: int = 1) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name, mechanism=mechanism, salt=b"s\0", stored_key=b"k" * 32, server_key=b"v" * 32, iterations=4096
    )


def a_token(token_id: str) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner="User:ann/b",
        requester="User:c",
        renewers=["User:d e"],
        issue_timestamp=1,
        max_timestamp=3,
        expiration_timestamp=2,
        token_id=token_id,
    )


EVERYTHING: list[object] = [
    FeatureLevelRecord(name="metadata.version", feature_level=21),
    *a_topic("t", 3),
    *a_topic("u.v_w-x"),
    a_setting(TOPIC, "t", "retention.ms", "1"),
    a_setting(BROKER, "", "num.io.threads", "3"),
    a_setting(BROKER, "2", "num.io.threads", "4"),
    a_setting(GROUP, "g/1", "consumer.session.timeout.ms", "5000"),
    a_limit("producer_byte_rate", 1024.0, user="ann/b c", client_id=None),
    a_limit("producer_byte_rate", 2048.0, user=None),
    a_limit("request_percentage", 12.5, client_id="app~"),
    a_limit("request_percentage", 10.0, user="ann"),
    a_limit("connection_creation_rate", 5.0, ip="::1"),
    a_credential("ann"),
    a_credential("ann", 2),
    a_credential("only credentials"),
    ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000),
    an_acl(1),
    an_acl(2),
    an_acl(3, "p", 4),
    a_token("tOkEn-1_x"),
]


class Controller:
    """One term: the tree as read, and a writer on it."""

    def __init__(self, server: SimZooKeeper) -> None:
        self.server = server
        self.session = server.connect(6000)
        if not server.exists(self.session, paths.CONTROLLER_EPOCH):
            made: list[Operation] = [Create(paths.CONTROLLER_EPOCH, b"7")]
            known: set[str] = set()
            for path in paths.PERSISTENT_PATHS:
                made += [Create(each, b"") for each in (*paths.parents(path), path) if each not in known]
                known.update([*paths.parents(path), path])
            server.multi(self.session, made)
        cluster = read(server.tree())
        self.repairs = cluster.repairs
        self.send(batches(cluster.repairs, 0))
        self.image = image_of(cluster)
        self.writer = TreeWriter(server.tree(), 1, CONTROLLER_EPOCH)

    def send(self, calls: Iterable[list[Operation]], after: Callable[[], None] = lambda: None) -> None:
        for call in calls:
            assert call[0] == GUARD
            self.server.multi(self.session, call)
            after()

    def change(self, *records: object, after: Callable[[], None] = lambda: None) -> None:
        """Write the changes of the records in as many calls as possible; `after` each of them."""
        self.send(([GUARD, *group] for group in self.planned(*records)), after)

    def planned(self, *records: object) -> list[Group]:
        """The operations of a change; they count as done."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        new, changes = delta.apply(self.image.offset + len(records), CONTROLLER_EPOCH)
        groups = self.writer.groups(self.image, new, changes)
        self.image = new
        return groups


def read(tree: dict[str, Znode]) -> Cluster:
    return read_cluster(tree, lambda _name: OLD_TOPIC_ID)


def image_of(cluster: Cluster) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in cluster.records:
        delta.replay(record.message)
    return delta.apply(0, CONTROLLER_EPOCH)[0]


def seen(server: SimZooKeeper) -> MetadataImage:
    return image_of(read(server.tree()))


def content(image: MetadataImage) -> dict[str, Any]:
    """The content of an image that a tree can contain, unordered where it has no order."""
    return {
        "topics": {name: plain(topic) for name, topic in image.topics.items()},
        "configs": {key: dict(values) for key, values in image.configs.items()},
        "features": dict(image.features),
        "limits": {entity: dict(limits) for entity, limits in image.client_quotas.items()},
        "credentials": dict(image.scram_credentials),
        "producer ids": image.next_producer_id,
        "acls": set(image.acls.values()),
        "tokens": dict(image.delegation_tokens),
    }


def plain(topic: TopicImage) -> tuple[bytes, dict[int, PartitionImage]]:
    return topic.topic_id, {index: each._replace(directories=()) for index, each in topic.partitions.items()}


def check_valid(image: MetadataImage) -> None:
    """Invariants of any cluster, also in the middle of a change."""
    for topic in image.topics.values():
        assert topic.partitions, topic.name
        assert list(topic.partitions) == list(range(len(topic.partitions)))
        for partition in topic.partitions.values():
            replicas = set(partition.replicas)
            assert set(partition.isr) <= replicas
            assert {*partition.adding_replicas, *partition.removing_replicas} <= replicas
            assert partition.leader in {*partition.isr, -1}
    for resource in image.configs:
        if resource.type == ConfigResourceType.TOPIC:
            assert resource.name in image.topics
