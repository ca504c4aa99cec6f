"""An Ottla cluster migrates from ZooKeeper to a quorum under load, and in a second test back (KIP-866).

There are three brokers and three controllers, each a process that is restarted with new settings. Writers (plain and
transactional) and a consumer group keep running during the migration, both librdkafka's and Java's. The active
controller and a broker are killed during it. Each broker has two data directories.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from test_controllers import HOST, Node
from test_transactions import Program, Programs
from test_zookeeper_brokers import IDS, PARTITIONS, WITHIN_S, Load
from tools import java
from zookeeper_tree import ZooKeeper

from ottla.app.ports import free_ports
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import ControllerClaim, decode_cluster_id, decode_controller

CONTROLLERS = (101, 102, 103)
SESSION_MS = 10_000
MIGRATION = "zookeeper.metadata.migration.enable"


class Machine(Node):
    """A node that is restarted with new settings."""

    def __init__(self, folder: Path, *directories: str) -> None:
        super().__init__(folder, {})
        self._directories = [folder / each for each in directories]
        self._data_dir = ",".join(map(str, self._directories))

    def begin(self, settings: Mapping[str, object]) -> None:
        """Start with these settings and wait until it serves."""
        self.config.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
        self._ready.unlink(missing_ok=True)
        self.start()

    def has_version(self, version: int) -> bool:
        """Returns whether all directories have that version."""
        return all(f"version={version}\n" in (each / "meta.properties").read_text() for each in self._directories)


class Cluster:
    """The processes, and their state as tools read it."""

    def __init__(self, zookeeper: str, folder: Path, stack: ExitStack) -> None:
        ports = free_ports(len(IDS) + len(CONTROLLERS))
        self._zookeeper = zookeeper
        self._ports = dict(zip((*IDS, *CONTROLLERS), ports, strict=True))
        voters = ",".join(f"{each}@{HOST}:{self._ports[each]}" for each in CONTROLLERS)
        self._quorum = {"controller.quorum.voters": voters, "controller.listener.names": "CONTROLLER"}
        self.nodes = {each: Machine(folder / str(each), "data", "more") for each in IDS}
        self.nodes |= {each: Machine(folder / str(each), "data") for each in CONTROLLERS}
        for node in self.nodes.values():
            stack.callback(node.kill)
        self.tree = KazooClient(zookeeper)
        self.tree.start(WITHIN_S)
        stack.callback(self.tree.close)
        stack.callback(self.tree.stop)
        self.claims: dict[int, ControllerClaim] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self._ports[each]}" for each in IDS)

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline, "timed out"
            time.sleep(0.1)

    # -- settings --------------------------------------------------------------------------------------------------

    def _broker(self, broker_id: int) -> dict[str, object]:
        return {
            "listeners": f"PLAINTEXT://{HOST}:{self._ports[broker_id]}",
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.num.partitions": 3,
            "group.initial.rebalance.delay.ms": 0,
        }

    def on_zookeeper(self, broker_id: int) -> dict[str, object]:
        own = {"broker.id": broker_id, "zookeeper.connect": self._zookeeper}
        return {**self._broker(broker_id), **own, "zookeeper.session.timeout.ms": SESSION_MS}

    def migrating(self, broker_id: int) -> dict[str, object]:
        return {**self.on_zookeeper(broker_id), **self._quorum, MIGRATION: "true"}

    def in_quorum(self, broker_id: int) -> dict[str, object]:
        return {**self._broker(broker_id), **self._quorum, "process.roles": "broker", "node.id": broker_id}

    def controller(self, node_id: int, *, migrates: bool) -> dict[str, object]:
        own = {
            "process.roles": "controller",
            "node.id": node_id,
            "listeners": f"CONTROLLER://{HOST}:{self._ports[node_id]}",
            **self._quorum,
        }
        return own | ({"zookeeper.connect": self._zookeeper, MIGRATION: "true"} if migrates else {})

    # -- steps of a migration ------------------------------------------------------------------------------------------

    def provision(self) -> None:
        """Format the controllers with the cluster id and start them."""
        cluster_id = decode_cluster_id("", self.tree.get(paths.CLUSTER_ID)[0])
        for each in CONTROLLERS:
            node = self.nodes[each]
            settings = self.controller(each, migrates=True)
            node.config.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
            node.format("--cluster-id", cluster_id)
        for each in CONTROLLERS:
            self.nodes[each].launch()
        for each in CONTROLLERS:
            self.nodes[each].ready()

    def roll(self, settings: Callable[[int], Mapping[str, object]], loads: list[Load]) -> None:
        """Restart each broker in turn."""
        for each in IDS:
            self.nodes[each].stop()
            self.nodes[each].begin(settings(each))
            self.until(self.whole)
            for load in loads:
                load.make_progress(self)  # type: ignore[arg-type]

    def whole(self) -> bool:
        """Returns whether every broker reports all replicas in sync."""
        for each in IDS:
            admin = AdminClient({"bootstrap.servers": f"{HOST}:{self._ports[each]}", "log_level": 0})
            topics = admin.list_topics(timeout=WITHIN_S).topics
            for name in ("t", "__consumer_offsets", "__transaction_state"):
                if name not in topics or any(len(one.isrs) < len(IDS) for one in topics[name].partitions.values()):
                    return False
        return True

    def claim(self) -> ControllerClaim | None:
        if not self.tree.exists(paths.CONTROLLER):
            return None
        epoch = self.tree.get(paths.CONTROLLER_EPOCH)[0]
        claim = decode_controller("", self.tree.get(paths.CONTROLLER)[0])
        if self.tree.get(paths.CONTROLLER_EPOCH)[0] != epoch:
            return None
        known = self.claims.setdefault(int(epoch), claim)
        assert known.broker_id == claim.broker_id, "two controllers of one epoch"
        return claim

    def has_taken_in_all(self) -> bool:
        """Returns whether the ZooKeeper controller has read the tree: it then rewrites each registration
        (`zookeeper/reading.py`).
        """
        found = [self.tree.exists(paths.broker(each)) for each in IDS]
        return all(stat is not None and stat.version > 0 for stat in found)

    def ruled_by_quorum(self) -> bool:
        claim = self.claim()
        return claim is not None and claim.kraft_controller_epoch >= 0

    def make(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(name, 1, 3)])[name].result(WITHIN_S)


class Reader(threading.Thread):
    """A group member that commits the records that it has read."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        options = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
        self._consumer = Consumer(options)
        self._consumer.subscribe(["t"])
        self._over = threading.Event()
        self.read: set[str] = set()

    def run(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.5)
            if message is not None and message.error() is None:
                self.read.add(message.value().decode())
        self._consumer.close()

    def end(self, cluster: Cluster, expected: set[str]) -> None:
        cluster.until(lambda: expected <= self.read or not self.is_alive())
        assert expected <= self.read
        self._over.set()
        self.join(WITHIN_S)
        assert not self.is_alive()


@pytest.fixture
def cluster(zookeeper_classpath: str, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster on ZooKeeper, with the topic."""
    with ZooKeeper(zookeeper_classpath) as server, ExitStack() as stack:
        cluster = Cluster(server.address, tmp_path, stack)
        for each in IDS:
            cluster.nodes[each].begin(cluster.on_zookeeper(each))
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic("t", PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["t"].result(WITHIN_S)
        yield cluster


@pytest.fixture
def loads(cluster: Cluster) -> list[Load]:
    loads = [Load(cluster), Load(cluster, "x")]  # type: ignore[arg-type]
    for load in loads:
        load.start()
    return loads


@pytest.fixture
def reader(cluster: Cluster, loads: list[Load]) -> Reader:
    reader = Reader(cluster)
    reader.start()
    cluster.until(lambda: reader.read)
    return reader


def taken_over(cluster: Cluster, loads: list[Load]) -> None:
    """Wait until the controllers run, the brokers are ready, and the quorum is in charge."""
    cluster.provision()
    cluster.roll(cluster.migrating, loads)
    cluster.until(cluster.ruled_by_quorum)
    cluster.make("made-by-the-quorum")
    cluster.until(lambda: cluster.tree.exists(paths.topic("made-by-the-quorum")))


def finalised(cluster: Cluster) -> None:
    for each in CONTROLLERS:
        cluster.nodes[each].stop()
        cluster.nodes[each].begin(cluster.controller(each, migrates=False))


def back_on_zookeeper(cluster: Cluster) -> None:
    """Follow the documented steps back to ZooKeeper."""
    for each in CONTROLLERS:
        cluster.nodes[each].stop()
    for path in (paths.CONTROLLER, paths.MIGRATION):
        cluster.tree.delete(path)
    cluster.until(lambda: (claim := cluster.claim()) is not None and claim.broker_id in IDS)
    cluster.until(cluster.has_taken_in_all)
    cluster.until(cluster.whole)


def stored_at(cluster: Cluster) -> dict[str, list[tuple[int | None, ...]]]:
    """Returns partition, offset and leader epoch of all committed records of the topic, by value."""
    options = {"bootstrap.servers": cluster.bootstrap, "group.id": "places", "enable.partition.eof": True}
    consumer = Consumer({**options, "isolation.level": "read_committed", "log_level": 0})
    consumer.assign([TopicPartition("t", number, 0) for number in range(PARTITIONS)])
    found: dict[str, list[tuple[int | None, ...]]] = {}
    ends = 0
    while ends < PARTITIONS:
        message = consumer.poll(WITHIN_S)
        assert message is not None
        if message.error() is None:
            place = (message.partition(), message.offset(), message.leader_epoch())
            found.setdefault(message.value().decode(), []).append(place)
        else:
            ends += 1
    consumer.close()
    return found


def nothing_was_lost(cluster: Cluster, loads: list[Load], reader: Reader) -> None:
    acknowledged = {value for load in loads for value in load.end()}
    reader.end(cluster, acknowledged)
    places = stored_at(cluster)
    assert acknowledged <= set(places)
    twice = {value: found for value, found in places.items() if len(found) > 1}
    assert not twice, "records were written twice"


@pytest.mark.promise("Z4")
def test_migration_to_a_quorum_loses_nothing(cluster: Cluster, loads: list[Load], reader: Reader) -> None:
    taken_over(cluster, loads)
    claim = cluster.claim()
    assert claim is not None
    cluster.nodes[claim.broker_id].kill()
    cluster.until(lambda: (now := cluster.claim()) is not None and now.broker_id != claim.broker_id)
    cluster.make("made-by-the-next")
    cluster.nodes[claim.broker_id].begin(cluster.controller(claim.broker_id, migrates=True))
    cluster.nodes[2].kill()
    for load in loads:
        load.make_progress(cluster)  # type: ignore[arg-type]
    cluster.nodes[2].begin(cluster.migrating(2))
    cluster.until(cluster.whole)
    cluster.roll(cluster.in_quorum, loads)
    assert all(cluster.nodes[each].has_version(0) for each in IDS)
    finalised(cluster)
    cluster.make("made-without-zookeeper")
    cluster.roll(cluster.in_quorum, loads)
    assert all(cluster.nodes[each].has_version(1) for each in IDS)
    assert not cluster.tree.exists(paths.topic("made-without-zookeeper"))
    nothing_was_lost(cluster, loads, reader)


@pytest.mark.promise("Z4")
def test_rollback_to_zookeeper_loses_nothing(cluster: Cluster, loads: list[Load], reader: Reader) -> None:
    taken_over(cluster, loads)
    cluster.roll(cluster.in_quorum, loads)
    cluster.make("made-on-the-way")
    cluster.roll(cluster.migrating, loads)
    cluster.until(lambda: cluster.tree.exists(paths.topic("made-on-the-way")))
    back_on_zookeeper(cluster)
    cluster.make("made-by-a-broker")
    cluster.roll(cluster.on_zookeeper, loads)
    nothing_was_lost(cluster, loads, reader)


class JavaClients:
    """Apache Kafka's Java clients: an idempotent producer, a transactional one, and a group of two readers."""

    def __init__(self, command: list[str], programs: Programs, bootstrap: str) -> None:
        writer = [*command, "Writer", bootstrap, "t", str(PARTITIONS)]
        self._writers = {
            "plain": programs.start("plain", [*writer, "plain"]),
            "x": programs.start("x", [*writer, "x", "java-x"]),
        }
        self._readers = [
            programs.start(f"reader-{number}", [*command, "Reader", bootstrap, "t", "java"]) for number in (1, 2)
        ]

    def make_progress(self, cluster: Cluster) -> None:
        """Wait until each writer and the group make progress."""
        everyone = [*self._writers.values(), *self._readers]
        before = {name: each.steps() for name, each in self._writers.items()}
        read = sum(each.steps() for each in self._readers)

        def further() -> bool:
            assert not any(each.ended for each in everyone), "".join(each.errors() for each in everyone)
            written = all(each.steps() > before[name] for name, each in self._writers.items())
            return written and sum(each.steps() for each in self._readers) > read

        cluster.until(further)

    def end(self, cluster: Cluster) -> None:
        """Check that no record was lost or duplicated, all are in order, and the group has read them."""
        assert [each.finish() for each in self._writers.values()] == [0, 0], [
            each.errors() for each in self._writers.values()
        ]
        acknowledged = {value for each in self._writers.values() for value in each.lines()}
        assert len(acknowledged) == sum(each.steps() for each in self._writers.values())
        places = stored_at(cluster)
        assert acknowledged == set(places), "stored records are the acknowledged ones"
        assert not [value for value, found in places.items() if len(found) > 1], "written twice"
        for name in self._writers:
            for partition in range(PARTITIONS):
                numbers = [
                    int(value.rpartition("-")[2])
                    for value, ((place, _offset, _epoch),) in sorted(
                        places.items(), key=lambda item: item[1][0][1] or 0
                    )
                    if place == partition and value.startswith(f"{name}-")
                ]
                assert numbers == sorted(numbers), "out of order"
        cluster.until(lambda: self._read() == acknowledged)
        assert [each.finish() for each in self._readers] == [0, 0]
        for each in self._readers:
            self._reads_in_order(each)

    def _read(self) -> set[str]:
        return {line.split()[2] for each in self._readers for line in each.lines()}

    @staticmethod
    def _reads_in_order(reader: Program) -> None:
        """The reader may restart at its committed offset, and skips no record after it."""
        seen: dict[str, list[int]] = {}
        for line in reader.lines():
            partition, offset, _value = line.split()
            seen.setdefault(partition, []).append(int(offset))
        for offsets in seen.values():
            assert offsets == sorted(set(offsets)), "read twice or out of order"


@pytest.fixture
def clients(cluster: Cluster, java_programs: Path, java_classpath: str, tmp_path: Path) -> Iterator[JavaClients]:
    folder = tmp_path / "clients"
    folder.mkdir()
    programs = Programs(folder)
    clients = JavaClients([*java(f"{java_classpath}:{java_programs}")], programs, cluster.bootstrap)
    clients.make_progress(cluster)
    yield clients
    for each in programs.all:
        each.kill()


def test_java_clients_over_migration_to_a_quorum(cluster: Cluster, clients: JavaClients) -> None:
    loads = [clients]
    taken_over(cluster, loads)
    claim = cluster.claim()
    assert claim is not None
    cluster.nodes[claim.broker_id].kill()
    cluster.until(lambda: (now := cluster.claim()) is not None and now.broker_id != claim.broker_id)
    clients.make_progress(cluster)
    cluster.nodes[claim.broker_id].begin(cluster.controller(claim.broker_id, migrates=True))
    cluster.roll(cluster.in_quorum, loads)
    finalised(cluster)
    cluster.roll(cluster.in_quorum, loads)
    clients.end(cluster)


def test_java_clients_over_rollback_to_zookeeper(cluster: Cluster, clients: JavaClients) -> None:
    loads = [clients]
    taken_over(cluster, loads)
    cluster.roll(cluster.in_quorum, loads)
    cluster.roll(cluster.migrating, loads)
    back_on_zookeeper(cluster)
    clients.make_progress(cluster)
    cluster.roll(cluster.on_zookeeper, loads)
    clients.end(cluster)
