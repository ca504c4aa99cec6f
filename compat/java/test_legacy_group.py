"""A group of Kafka 0.9's and Ottla's consumers on ZooKeeper 3.4.6 reads everything while members join and leave.

Both read from an Ottla broker, which the test registers in ZooKeeper.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.cluster.ensemble import JAVA
from zookeeper_tree import ZooKeeper

from ottla import Admin, LegacyConsumer, Producer
from ottla.common.platform.endpoint import Endpoint
from ottla.protocol.znodes.brokers import BrokerRegistration, encode_broker
from ottla.protocol.znodes.topics import Assignment, TopicAssignment, encode_topic
from ottla.testing import Broker

WITHIN_S = 240
TIMEOUT_MS = 30_000
"""Nothing here waits for a session to time out."""
GROUP, TOPIC, PARTITIONS = "shared-with-0.9", "shared-with-0.9", 5
SETTINGS = {"group.id": GROUP, "auto.commit.interval.ms": 100, "rebalance.backoff.ms": 200}


class Ours:
    """An Ottla consumer, and a thread that collects its records."""

    def __init__(self, server: str) -> None:
        settings = {**SETTINGS, "zookeeper.connect": server, "auto.offset.reset": "smallest"}
        self._consumer = LegacyConsumer({**settings, "zookeeper.session.timeout.ms": TIMEOUT_MS})
        (self._stream,) = self._consumer.create_message_streams({TOPIC: 1})[TOPIC]
        self.values: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for record in self._stream:
            self.values.append((record.value or b"").decode())

    def taken(self) -> set[str]:
        return set(self.values)

    def close(self) -> None:
        self._consumer.shutdown()
        self._thread.join(WITHIN_S)


class Theirs:
    """Apache Kafka's console consumer."""

    def __init__(self, classpath: str, server: str, folder: Path) -> None:
        self._out = folder / "console.out"
        config = folder / "consumer.properties"
        # A console consumer gives up for good after this many failed rebalances, and the default of four is too low.
        settings = {**SETTINGS, "rebalance.max.retries": 10_000, "zookeeper.session.timeout.ms": TIMEOUT_MS}
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        arguments = ["--zookeeper", server, "--topic", TOPIC, "--consumer.config", str(config)]
        with self._out.open("wb") as out:
            command = [*JAVA, "-cp", classpath, "kafka.tools.ConsoleConsumer", *arguments]
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)

    def taken(self) -> set[str]:
        assert self._process.poll() is None, "it ended by itself"
        return set(self._out.read_text().split())

    def close(self) -> None:
        """Stop it as by Ctrl-C: it leaves the group."""
        self._process.terminate()
        self._process.wait(WITHIN_S)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class World:
    """The members, the owners of partitions in ZooKeeper, and the produced records."""

    def __init__(self, servers: str, zookeeper: KazooClient) -> None:
        self._zookeeper = zookeeper
        self._servers = servers
        host, _, port = servers.rpartition(":")
        broker = BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", host, int(port)),), None, {}, 0)
        topic = TopicAssignment(b"t" * 16, {number: Assignment((1,)) for number in range(PARTITIONS)})
        with Admin(servers) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=1)
        zookeeper.create("/brokers/ids/1", encode_broker(broker), makepath=True)
        zookeeper.create(f"/brokers/topics/{TOPIC}", encode_topic(topic), makepath=True)
        self.sent: set[str] = set()

    def fill(self) -> None:
        """Produce four more records to each partition."""
        with Producer(self._servers) as producer:
            for partition in range(PARTITIONS):
                for _ in range(4):
                    value = str(len(self.sent))
                    self.sent.add(value)
                    producer.send(TOPIC, value, partition=partition)

    def _found(self, kind: str) -> list[str | None]:
        found: list[str | None] = []
        for number in range(PARTITIONS):
            try:
                found.append(self._zookeeper.get(f"/consumers/{GROUP}/{kind}/{TOPIC}/{number}")[0].decode())
            except NoNodeError:
                found.append(None)
        return found

    def shared_by(self, count: int) -> None:
        """Wait until there are `count` members, and each partition is owned by a live one."""

        def settled() -> bool:
            owners = self._found("owners")
            threads = {f"{consumer}-0" for consumer in self._zookeeper.get_children(f"/consumers/{GROUP}/ids")}
            return len(threads) == count and None not in owners and set(owners) == threads

        until(settled)

    def committed(self, offset: int) -> None:
        """Wait until the group has committed `offset` in each partition."""
        until(lambda: self._found("offsets") == [str(offset)] * PARTITIONS)


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def test_a_group_is_shared_with_kafka_0_9(kafka_of: Callable[[str], str], broker: Broker, tmp_path: Path) -> None:
    classpath = kafka_of("0.9")
    with ZooKeeper(classpath) as server:
        shell = KazooClient(server.address)
        theirs: Theirs | None = None
        try:
            shell.start(WITHIN_S)
            world = World(broker.bootstrap_servers, shell)
            world.fill()
            first = Ours(server.address)
            until(lambda: first.taken() == world.sent)
            world.committed(4)  # the console consumer starts at the end where no offset is committed

            theirs = Theirs(classpath, server.address, tmp_path)
            world.shared_by(2)
            world.fill()
            until(lambda: first.taken() | theirs.taken() == world.sent)
            first.close()
            world.shared_by(1)
            world.fill()
            until(lambda: first.taken() | theirs.taken() == world.sent)

            second = Ours(server.address)
            world.shared_by(2)
            world.fill()
            until(lambda: first.taken() | theirs.taken() | second.taken() == world.sent)
            by_theirs = theirs.taken()
            theirs.close()
            world.shared_by(1)
            world.fill()
            until(lambda: first.taken() | by_theirs | second.taken() == world.sent)
            world.committed(20)
            second.close()
            assert by_theirs - first.taken()
            assert second.taken()
        finally:
            if theirs is not None:
                theirs.kill()
            shell.stop()
            shell.close()
