"""Every integer of every request that a controller serves, at its limits, against three real nodes.

The requests are those of an honest node or administrator, with ids and epochs that any client can read in the metadata
log, except for one integer. Afterwards the cluster still leads, restarts, and keeps and accepts records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, product
from operator import setitem
from pathlib import Path
from typing import Any

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.common.config.feature_levels import METADATA_VERSION
from ottla.common.errors import OttlaError
from ottla.common.kafka.ids import METADATA_TOPIC_ID, uuid_from_string
from ottla.metadata.records import SUPPORTED_FEATURES
from ottla.protocol.header import encode_request
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from ottla.protocol.registry import API, ApiKey
from ottla.protocol.schema import ArrayType, Field, Primitive, schema_of
from ottla.quorum.replay import batch_content
from ottla.record.batch import iter_batches
from ottla.server.handlers.admin.apis import ADMIN_APIS
from ottla.server.handlers.quorum.administration import QUORUM_ADMIN_APIS
from ottla.server.handlers.quorum.apis import QUORUM_APIS
from ottla.server.requests.api import ApiRow, Listeners
from ottla.storage.files.names import METADATA_TOPIC

from ..cluster.nodes import Node, Nodes, eventually
from ..cluster.test_three_nodes import admin, consume, create, in_sync, produce
from .wire import Wire

ENDS = {
    "int8": (-(1 << 7), -1, 0, (1 << 7) - 1),
    "int16": (-(1 << 15), -1, 0, (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), -1, 0, (1 << 31) - 2, (1 << 31) - 1),
    "int64": (-(1 << 63), -1, 0, (1 << 63) - 2, (1 << 63) - 1),
}
QUICK_S = 1.0
PATIENCE_S = 0.3
"""Response timeout in seconds; some requests wait themselves, up to their own timeout."""
TOPIC = "walked"
HARMED = "harmed"
"""The topic of the requests; changes that they request may be applied to it."""
STRANGER = 7
GHOST = b"i" * 16
NEW = (f"new-{number}" for number in count())
LEFT_OUT = {ApiKey.CREATE_TOPICS: "assignments", ApiKey.CREATE_PARTITIONS: "assignments"}
"""Arrays without which a request asks for something else; both are tried."""
OF_METADATA_LOG = {ApiKey.FETCH, ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH}
OF_METADATA_LOG |= {ApiKey.FETCH_SNAPSHOT, ApiKey.DESCRIBE_QUORUM}
ROWS: tuple[ApiRow[Any], ...] = (*ADMIN_APIS, *QUORUM_APIS, *QUORUM_ADMIN_APIS)
APIS = sorted(row.key for row in ROWS if Listeners.CONTROLLER in row.listeners)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Three running nodes."""
    nodes = Nodes(tmp_path)
    nodes.start()
    yield nodes
    nodes.close()


class Knowledge:
    """The knowledge of an arbitrary client, from the metadata log and the leader."""

    def __init__(self, nodes: Nodes, target: Node, left_out: str) -> None:
        """`left_out`: the array that stays empty."""
        self.nodes = nodes
        self.target = target
        self.left_out = left_out
        self.epoch, self.leader = eventually(lambda: leader_of(nodes), "the quorum has a leader")
        self.broker_epochs: dict[int, int] = {}
        self.topic_id = bytes(16)
        self.partition: Any = PartitionRecord()
        self._read()

    def _read(self) -> None:
        """Read the log as an observer that has caught up with it."""
        offset = last_epoch = 0
        with Wire(self.nodes[self.leader].place.controller_port) as wire:
            while True:
                asked = FetchPartition(
                    fetch_offset=offset,
                    current_leader_epoch=self.epoch,
                    partition_max_bytes=1 << 20,
                    last_fetched_epoch=last_epoch,
                    replica_directory_id=GHOST,
                )
                topics = [FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[asked])]
                request = FetchRequest(
                    cluster_id=self.nodes.cluster_id,
                    replica_state=ReplicaState(replica_id=STRANGER),
                    max_bytes=1 << 20,
                    topics=topics,
                )
                response: Any = wire.ask(ApiKey.FETCH, API[ApiKey.FETCH].max_version, request)
                records = response.responses[0].partitions[0].records if response.responses else None
                if not records:
                    return
                for batch in iter_batches(records):
                    offset, last_epoch = batch.next_offset, batch.partition_leader_epoch
                    if batch.is_control:
                        continue
                    for record in batch_content(batch)[0]:
                        self._learn(record)

    def _learn(self, record: Any) -> None:
        if isinstance(record, RegisterBrokerRecord):
            self.broker_epochs[record.broker_id] = record.broker_epoch
        elif isinstance(record, TopicRecord) and record.name == HARMED:
            self.topic_id = record.topic_id
        elif isinstance(record, PartitionRecord) and record.topic_id == self.topic_id and record.partition_id == 0:
            self.partition = record
        elif isinstance(record, PartitionChangeRecord) and record.topic_id == self.topic_id:
            self.partition.partition_epoch += 1
            if record.leader >= 0:
                self.partition.leader = record.leader
                self.partition.leader_epoch += 1

    @property
    def other(self) -> Node:
        """The impersonated node; not the leader, and not the target if there is a third."""
        return next(node for node in self.nodes.nodes if node.node_id not in (self.leader, self.target.node_id))

    def value(self, api: ApiKey, cls: type, kind: Primitive, name: str) -> Any:
        """The value of a field of `cls` in an honest request."""
        if name == "value" and kind.name == "string":
            return "86400000"
        named = self._name(api, cls) if name == "name" else self._number(api, name)
        if named is None:
            named = self._identity(api).get(name)
        if named is not None:
            return named
        return {"string": "x", "uuid": GHOST}.get(kind.name, kind.default)

    def _name(self, api: ApiKey, cls: type) -> str:
        if "Listener" in cls.__name__ or "Endpoint" in cls.__name__:
            return "CONTROLLER" if api is not ApiKey.BROKER_REGISTRATION else "PLAINTEXT"
        if "Feature" in cls.__name__:
            return METADATA_VERSION
        if "Config" in cls.__name__:
            return "retention.ms"
        if api is ApiKey.CREATE_TOPICS:
            return next(NEW)
        return METADATA_TOPIC if api in OF_METADATA_LOG else HARMED

    def _number(self, api: ApiKey, name: str) -> int | None:
        """Integers that are not ids."""
        one = -1 if api is ApiKey.CREATE_TOPICS and self.left_out == "" else 1
        return {
            "endpoint_type": 2,
            "resource_type": 2,
            "max_version_level": SUPPORTED_FEATURES[METADATA_VERSION].high,
            "upgrade_type": 1,
            "max_bytes": 1 << 20,
            "partition_max_bytes": 1 << 20,
            "timeout_ms": 100,
            "count": 2,
            "num_partitions": one,
            "replication_factor": one,
        }.get(name)

    def _identity(self, api: ApiKey) -> dict[str, Any]:
        """Ids and epochs."""
        other, target = self.other, self.target
        of_log = api in OF_METADATA_LOG
        of_voter = api in (ApiKey.UPDATE_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER)
        named = other if of_voter else target
        directory_id = uuid_from_string(named.directory_id)
        broker = STRANGER if api is ApiKey.BROKER_REGISTRATION else other.node_id
        if api is ApiKey.ALTER_PARTITION:
            broker = self.partition.leader
        return {
            "cluster_id": self.nodes.cluster_id,
            "voter_id": STRANGER if api is ApiKey.ADD_RAFT_VOTER else named.node_id,
            "voter_directory_id": GHOST if api is ApiKey.ADD_RAFT_VOTER else directory_id,
            "replica_id": other.node_id,
            "candidate_id": other.node_id,
            "controller_id": other.node_id,
            "replica_directory_id": uuid_from_string(other.directory_id),
            "candidate_directory_id": uuid_from_string(other.directory_id),
            "leader_id": self.leader,
            "leader_epoch": self.partition.leader_epoch if api is ApiKey.ALTER_PARTITION else self.epoch,
            "partition_epoch": self.partition.partition_epoch,
            "current_leader_epoch": self.epoch,
            "replica_epoch": self.epoch + 1,
            "broker_id": broker,
            "broker_ids": broker,
            "replicas": broker,
            "new_isr": broker,
            "broker_epoch": self.broker_epochs.get(broker, -1),
            "previous_broker_epoch": self.broker_epochs.get(broker, -1),
            "topic_id": METADATA_TOPIC_ID if of_log else self.topic_id,
            "topic": METADATA_TOPIC if of_log else HARMED,
            "topic_name": METADATA_TOPIC if of_log else HARMED,
            "topic_names": HARMED,
            "feature": METADATA_VERSION,
            "resource_name": HARMED,
            "host": target.place.host,
            "port": target.place.controller_port,
        }

    def message(self, api: ApiKey, version: int, cls: type) -> Any:
        """An honest request, every array with one element."""
        fields = {}
        for field in fields_of(cls, version):
            kind = field.type
            if isinstance(kind, ArrayType):
                item = kind.item
                if field.name == "features" and not isinstance(item, Primitive):
                    fields[field.name] = [
                        item(name=name, min_supported_version=levels.low, max_supported_version=levels.high)
                        for name, levels in SUPPORTED_FEATURES.items()
                    ]
                elif field.name == self.left_out:
                    fields[field.name] = []
                elif isinstance(item, Primitive):
                    fields[field.name] = [self.value(api, cls, item, field.name)]
                else:
                    fields[field.name] = [self.message(api, version, item)]
            elif isinstance(kind, Primitive):
                fields[field.name] = self.value(api, cls, kind, field.name)
            else:
                fields[field.name] = self.message(api, version, kind)
        return cls(**fields)


def fields_of(cls: type, version: int) -> list[Field]:
    """Those that this version has."""
    return [field for field in schema_of(cls).fields if version in field.versions]


def integers(message: Any, version: int) -> Iterator[tuple[str, Primitive, Callable[[int], None]]]:
    """Path, type and setter of every integer in a message."""
    for field in fields_of(type(message), version):
        value = getattr(message, field.name)
        kind = field.type
        if isinstance(kind, ArrayType) and isinstance(kind.item, Primitive):
            if kind.item.name in ENDS:
                yield field.name, kind.item, partial(setitem, value, 0)
        elif isinstance(kind, ArrayType) and not value:
            continue
        elif isinstance(kind, Primitive):
            if kind.name in ENDS:
                yield field.name, kind, partial(setattr, message, field.name)
        else:
            inner = value[0] if isinstance(kind, ArrayType) else value
            for path, primitive, put in integers(inner, version):
                yield f"{field.name}.{path}", primitive, put


def leader_of(nodes: Nodes) -> tuple[int, int] | None:
    """(epoch, node id) of the quorum leader by its own response; None without a leader."""
    try:
        with Cluster(nodes.bootstrap_servers) as cluster:
            quorum = cluster.quorum.describe()
    except OttlaError:
        return None
    return quorum.leader_epoch, quorum.leader_id


def ask(node: Node, api: ApiKey, version: int, message: Any) -> bool:
    """Send it and wait a moment for the answer; whether there was one."""
    with Wire(node.place.controller_port) as wire:
        wire.send_raw(encode_request(api, version, 1, "walk", message))
        wire.socket.settimeout(PATIENCE_S)
        try:
            return wire.receive() is not None
        except TimeoutError:
            return False


def answered_within_a_second(node: Node) -> bool:
    """Whether a client of the broker gets a response; retried, since the machine may be busy."""

    def tried() -> bool:
        begin = time.monotonic()
        with Wire(node.port) as wire:
            assert wire.ask(ApiKey.METADATA, 9, MetadataRequest(topics=[])).brokers
        return time.monotonic() - begin < QUICK_S

    return any(tried() for _ in range(5))


def walk(nodes: Nodes, api: ApiKey, version: int, left_out: str) -> tuple[int, int]:
    """Every integer of the request at each of its ends, to each node; how many were sent, and how many answered."""
    sent = answered = 0
    request = API[api].request
    for target in nodes.nodes:
        known = Knowledge(nodes, target, left_out)
        for place, (path, kind, _) in enumerate(integers(known.message(api, version, request), version)):
            for end in ENDS[kind.name]:
                message = known.message(api, version, request)
                list(integers(message, version))[place][2](end)
                answered += ask(target, api, version, message)
                sent += 1
                assert target.process is not None
                assert target.process.poll() is None, f"{api.name} with {path} = {end} ended node {target.node_id}"
    return sent, answered


def check(nodes: Nodes, api: ApiKey, epoch: int) -> None:
    """Clients are served, the quorum has a leader, and records are accepted, after requests of `api`."""
    for node in nodes.nodes:
        assert answered_within_a_second(node), api.name
    now, _ = eventually(lambda: leader_of(nodes), f"the quorum has a leader after {api.name}")
    assert now < epoch + 100, api.name
    client = admin(*nodes.nodes)
    eventually(lambda: in_sync(client, TOPIC, 3), f"all replicas are in sync after {api.name}")
    produce(nodes, TOPIC, [f"{api.name}-{number}" for number in range(10)])


@pytest.mark.promise("S10")
def test_no_integer_stops_the_cluster(nodes: Nodes) -> None:
    client = admin(*nodes.nodes)
    create(client, TOPIC, min_insync_replicas="2")
    create(client, HARMED, partitions=1, replicas=1)
    eventually(lambda: in_sync(client, TOPIC, 3), "all replicas are in sync")
    for api in APIS:
        epoch, _ = eventually(lambda: leader_of(nodes), "the quorum has a leader")
        for version, left_out in product({API[api].min_version, API[api].max_version}, {"", LEFT_OUT.get(api, "")}):
            sent, answered = walk(nodes, api, version, left_out)
            assert answered >= sent / 2, f"{api.name} v{version}: unread requests test nothing"
        check(nodes, api, epoch)
    for node in nodes.nodes:
        assert "Traceback" not in node.log_text()
        node.stop()
    nodes.start()
    eventually(lambda: in_sync(client, TOPIC, 3), "all replicas are in sync again")
    produce(nodes, TOPIC, ["at last"])
    assert len(consume(nodes, TOPIC, 10 * len(APIS) + 1)) == 10 * len(APIS) + 1
