"""ZooKeeper's tree converted to the metadata records of the same cluster.

The tree may be left by a controller that failed in the middle of a change, or by a tool that began one: every state
that `writing` leaves between two calls is read as a consistent cluster.

- A topic that waits for its deletion does not exist; its remains are in the repairs.
- A partition without a state was assigned and never led: it has no leader, all its replicas are in sync (there are no
  records that they could lack), and its epoch is `NO_STATE`, so that its first change creates the state with version 0.
- Partition epochs are versions of states; broker epochs are the transactions that created the registrations.
- A registration with version 0 belongs to a broker that no controller has accepted (`NEW`).

Only in records: data directories, eligible leaders, fenced and stopping brokers, ACL ids (computed here from the ACL,
so that all nodes agree). Only in znodes: creators and creation times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import KafkaError, ProtocolError
from ottla.common.kafka.acl import Acl, PatternType
from ottla.common.kafka.ids import Uuid
from ottla.metadata.image import (
    NO_LEADER,
    ConfigResource,
    PartitionImage,
    QuotaEntity,
    VersionRange,
    quota_entity,
)
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.metadata.snapshot import (
    acl_record,
    client_quota_record,
    delegation_token_record,
    endpoint_rows,
    feature_rows,
    partition_record,
    scram_credential_record,
)
from ottla.metadata.topic_names import validate_topic_name
from ottla.protocol.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.acls import RESOURCE_TYPES, decode_acls
from ottla.protocol.znodes.brokers import decode_broker, decode_features, decode_producer_ids
from ottla.protocol.znodes.configs import decode_config
from ottla.protocol.znodes.fields import MAX_INT32, decimal
from ottla.protocol.znodes.operations import Delete, SetData, Znode
from ottla.protocol.znodes.tokens import decode_token
from ottla.protocol.znodes.topics import Assignment, TopicAssignment, decode_state, decode_topic, encode_topic
from ottla.zookeeper.batches import Group
from ottla.zookeeper.entities import CLIENT_ID, CONFIG_FOLDERS, LIMIT_FOLDERS, USER, parse_entity

Tree = Mapping[str, Znode]
"""Every znode by its path, as read by one pass."""

NO_STATE = -1
NEW = 0
"""Version of a registration until a controller accepts it, which rewrites it unchanged."""

ROOTS = (
    "/brokers",
    "/config",
    "/admin",
    paths.FEATURE,
    paths.PRODUCER_ID_BLOCK,
    paths.ISR_CHANGES,
    paths.LOG_DIR_EVENTS,
    paths.ACLS,
    paths.ACL_CHANGES,
    "/kafka-acl-extended",
    paths.PREFIXED_ACL_CHANGES,
    "/delegation_token",
)
"""Roots of all znodes that a controller reads or writes, except claims and the znodes of consumers."""


@dataclass(slots=True)
class Cluster:
    """The cluster in a tree."""

    records: list[ApiMessageAndVersion] = field(default_factory=list)
    """All records, relative to the empty image."""
    newcomers: dict[int, RegisterBrokerRecord] = field(default_factory=dict)
    """Brokers with a registration that no controller has accepted: such a broker may lack the data of its earlier run.
    """
    unnamed: list[str] = field(default_factory=list)
    """Topics stored without ids; the repairs write their ids."""
    repairs: list[Group] = field(default_factory=list)
    """The first operations of a new controller: finish deletions, write ids of old topics."""

    @property
    def known(self) -> Iterator[ApiMessageAndVersion]:
        """The records without new brokers. The controller accepts those once their former partitions have other
        leaders.
        """
        for record in self.records:
            if not (isinstance(record.message, RegisterBrokerRecord) and record.message.broker_id in self.newcomers):
                yield record


def read_cluster(tree: Tree, id_of: Callable[[str], Uuid]) -> Cluster:
    """The cluster of a tree; `id_of` returns ids of topics written by tools that know no ids.

    Raises ProtocolError with the path of an unreadable znode.
    """
    reader = _Reader(tree, id_of)
    cluster = reader.cluster
    for records in (
        reader.features(),
        reader.brokers(),
        reader.topics(),
        reader.configs(),
        reader.limits(),
        reader.producer_ids(),
        reader.acls(),
        reader.tokens(),
    ):
        cluster.records.extend(map(versioned, records))
    return cluster


class _Reader:
    """One pass over a tree."""

    def __init__(self, tree: Tree, id_of: Callable[[str], Uuid]) -> None:
        self._tree = tree
        self._id_of = id_of
        self._children: dict[str, list[str]] = {}
        for path in tree:
            parent, _, name = path.rpartition("/")
            self._children.setdefault(parent, []).append(name)
        self._deleted = set(self._below(paths.DELETE_TOPICS))
        self.cluster = Cluster()

    def _below(self, path: str) -> list[str]:
        return self._children.get(path, [])

    def _data(self, path: str) -> bytes:
        node = self._tree.get(path)
        return b"" if node is None else node.data

    def features(self) -> Iterator[object]:
        data = self._data(paths.FEATURE)
        if data:
            for name, level in decode_features(paths.FEATURE, data).items():
                yield FeatureLevelRecord(name=name, feature_level=level)

    def brokers(self) -> Iterator[object]:
        for name in self._below(paths.BROKER_IDS):
            node = self._tree[f"{paths.BROKER_IDS}/{name}"]
            record = broker_record(name, node)
            if node.version == NEW:
                self.cluster.newcomers[record.broker_id] = record
            yield record

    def topics(self) -> Iterator[object]:
        for name in self._deleted:
            self.cluster.repairs += ([Delete(path)] for path in self._rest_of_deletion(name))
        for name in self._below(paths.BROKER_TOPICS):
            if name not in self._deleted:
                yield from self._topic(name)

    def _rest_of_deletion(self, name: str) -> list[str]:
        """Znodes below go first and the deletion request last, so that this may be interrupted too."""
        found: list[str] = []
        waiting = [paths.topic(name)]
        while waiting:
            path = waiting.pop()
            if path in self._tree:
                found.append(path)
                waiting += [f"{path}/{step}" for step in self._below(path)]
        config = paths.entity(paths.CONFIG_TOPICS, name)
        last = [path for path in (config, paths.deletion(name)) if path in self._tree]
        return [*reversed(found), *last]

    def _topic(self, name: str) -> Iterator[object]:
        path = paths.topic(name)
        node = self._tree[path]
        topic = assigned_topic(name, node)
        topic_id = topic.topic_id
        if topic_id is None:
            topic_id = self._id_of(name)
            data = encode_topic(topic._replace(topic_id=topic_id))
            self.cluster.unnamed.append(name)
            self.cluster.repairs.append([SetData(path, data, node.version)])
        yield TopicRecord(name=name, topic_id=topic_id)
        for number, assignment in topic.partitions.items():
            yield partition_record(topic_id, number, self._partition(name, number, assignment))

    def _partition(self, topic: str, number: int, assignment: Assignment) -> PartitionImage:
        path = paths.state(topic, number)
        node = self._tree.get(path)
        if node is None:
            return never_led(assignment)
        state = decode_state(path, node.data)
        if not set(state.isr) <= set(assignment.replicas):
            raise ProtocolError(f"znode {path} has an ISR with brokers that are not replicas")
        return PartitionImage(
            assignment.replicas,
            isr=state.isr,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=node.version,
            adding_replicas=assignment.adding,
            removing_replicas=assignment.removing,
            leader_recovery_state=state.recovery_state,
        )

    def configs(self) -> Iterator[object]:
        topics = set(self._below(paths.BROKER_TOPICS)) - self._deleted
        for kind, folder in CONFIG_FOLDERS.items():
            for step in self._below(folder):
                resource = ConfigResource(kind, paths.desanitized(folder, step) or "")
                # Configs of a topic that was never created or is deleted: their writer sent no notification.
                if kind is ConfigResourceType.TOPIC and resource.name not in topics:
                    continue
                path = f"{folder}/{step}"
                for name, value in decode_config(path, self._data(path)).items():
                    yield ConfigRecord(resource_type=kind, resource_name=resource.name, name=name, value=value)

    def limits(self) -> Iterator[object]:
        for path, entity in self._entities():
            values = parse_entity(path, entity, decode_config(path, self._data(path)))
            for name, limit in values.limits.items():
                yield client_quota_record(entity, name, limit)
            for key, credential in values.credentials.items():
                yield scram_credential_record(key, credential)

    def _entities(self) -> Iterator[tuple[str, QuotaEntity]]:
        for kind, folder in LIMIT_FOLDERS.items():
            for step in self._below(folder):
                path = f"{folder}/{step}"
                name = paths.desanitized(folder, step)
                yield path, quota_entity([(kind, name)])
                clients = f"{path}/clients"
                for client in self._below(clients) if kind == USER else ():
                    entity = quota_entity([(USER, name), (CLIENT_ID, paths.desanitized(clients, client))])
                    yield f"{clients}/{client}", entity

    def producer_ids(self) -> Iterator[object]:
        data = self._data(paths.PRODUCER_ID_BLOCK)
        if data:
            block = decode_producer_ids(paths.PRODUCER_ID_BLOCK, data)
            yield ProducerIdsRecord(broker_id=block.broker_id, next_producer_id=block.last + 1)

    def acls(self) -> Iterator[object]:
        for root, pattern in ((paths.ACLS, PatternType.LITERAL), (paths.PREFIXED_ACLS, PatternType.PREFIXED)):
            for type_name in self._below(root):
                kind = RESOURCE_TYPES.get(type_name)
                if kind is None:
                    path, known = f"{root}/{type_name}"[:120], ", ".join(RESOURCE_TYPES)
                    raise ProtocolError(
                        f"ACL znode {path!r} has an unknown resource type (known: {known}); remove it, or start a "
                        "version that supports it"
                    )
                for name in self._below(f"{root}/{type_name}"):
                    path = f"{root}/{type_name}/{name}"
                    for acl in decode_acls(path, self._data(path), kind, pattern, name):
                        yield acl_record(acl_id(acl), acl)

    def tokens(self) -> Iterator[object]:
        for name in self._below(paths.TOKENS):
            path = f"{paths.TOKENS}/{name}"
            yield delegation_token_record(decode_token(path, self._data(path)))


def assigned_topic(name: str, node: Znode) -> TopicAssignment:
    """The topic with that name below `/brokers/topics`; raises ProtocolError."""
    path = paths.topic(name)
    try:
        validate_topic_name(name)
    except KafkaError as error:
        raise ProtocolError(f"znode {path[:400]!r} is not a valid topic name") from error
    return decode_topic(path, node.data)


def assignment_of(partition: PartitionImage) -> Assignment:
    """The assignment of a partition in the topic's znode."""
    return Assignment(partition.replicas, partition.adding_replicas, partition.removing_replicas)


def never_led(assignment: Assignment) -> PartitionImage:
    """A partition without a state."""
    return PartitionImage(
        assignment.replicas,
        isr=assignment.replicas,
        leader=NO_LEADER,
        leader_epoch=0,
        partition_epoch=NO_STATE,
        adding_replicas=assignment.adding,
        removing_replicas=assignment.removing,
    )


def broker_record(name: str, node: Znode) -> RegisterBrokerRecord:
    """The broker registered with that name below `/brokers/ids`; raises ProtocolError."""
    path = f"{paths.BROKER_IDS}/{name}"
    broker_id = decimal(f"{path} by its name", name, high=MAX_INT32)
    registration = decode_broker(path, node.data)
    features = {feature: VersionRange(*levels) for feature, levels in registration.features.items()}
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=node.created,
        incarnation_id=broker_id.to_bytes(8, "big") + node.created.to_bytes(8, "big"),
        end_points=endpoint_rows(BrokerEndpoint, registration.endpoints),
        features=feature_rows(BrokerFeature, features),
        rack=registration.rack,
        fenced=False,
    )


def acl_id(acl: Acl) -> Uuid:
    """The id of an ACL in a cluster without ACL ids: every node computes the same one."""
    return hashlib.sha256("\0".join(map(str, acl)).encode()).digest()[:16]
