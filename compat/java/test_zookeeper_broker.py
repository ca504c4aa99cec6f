"""An Ottla broker on a real ZooKeeper: clients, a stop, kill -9, and another cluster's data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kazoo.client import KazooClient
from zookeeper_tree import ZooKeeper

from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import decode_broker, decode_cluster_id, decode_controller
from ottla.protocol.znodes.topics import PartitionState, decode_state
from ottla.testing import Broker

WITHIN_S = 60
SESSION_MS = 10_000
"""A successor of a killed broker waits for the session's expiry; a shorter one could expire on a busy machine."""
START_S = 120.0


def settings(address: str) -> dict[str, object]:
    return {
        "zookeeper.connect": address,
        "zookeeper.session.timeout.ms": SESSION_MS,
        "broker.id": 7,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
    }


def produce(broker: Broker, *values: str, transactional_id: str | None = None) -> None:
    options = {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
    if transactional_id is not None:
        options["transactional.id"] = transactional_id
    producer = Producer(options)
    failed: list[object] = []
    if transactional_id is not None:
        producer.init_transactions(WITHIN_S)
        producer.begin_transaction()
    for value in values:
        producer.produce("t", value, on_delivery=lambda error, _message: failed.append(error) if error else None)
    if transactional_id is not None:
        producer.commit_transaction(WITHIN_S)
    assert producer.flush(WITHIN_S) == 0
    assert not failed


def consume(broker: Broker, count: int) -> list[str]:
    """Returns the next records of group `g`, and commits them."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(WITHIN_S)
        assert message is not None
        assert message.error() is None
        found.append(message.value().decode())
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


class Tree:
    """The znodes as a separate client reads them."""

    def __init__(self, address: str) -> None:
        self._client = KazooClient(address)
        self._client.start(WITHIN_S)

    def data(self, path: str) -> bytes:
        return bytes(self._client.get(path)[0])

    def born(self, path: str) -> int:
        """Returns the id of the transaction that created the znode."""
        return int(self._client.get(path)[1].czxid)

    def states(self) -> list[PartitionState]:
        return [decode_state("", self.data(paths.state("t", number))) for number in (0, 1)]

    def close(self) -> None:
        self._client.stop()
        self._client.close()


def refused(address: str, data_dir: Path, **more: object) -> str:
    """Returns the error message of a start that must fail."""
    options = {**settings(address), "log.dirs": data_dir, "listeners": "PLAINTEXT://127.0.0.1:0", **more}
    command = [sys.executable, "-m", "ottla", "start"]
    for name, value in options.items():
        command += ["--set", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


def test_broker_serves_stops_and_is_killed(zookeeper_classpath: str, tmp_path: Path) -> None:
    with (
        ZooKeeper(zookeeper_classpath) as server,
        Broker(configs=settings(server.address), start_timeout_s=START_S) as broker,
    ):
        tree = Tree(server.address)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        topic = NewTopic("t", 2, 1, config={"retention.ms": "86400000"})
        admin.create_topics([topic])["t"].result(WITHIN_S)
        produce(broker, "a", "b")
        produce(broker, "c", transactional_id="x")
        assert sorted(consume(broker, 3)) == ["a", "b", "c"]

        registered = decode_broker("", tree.data(paths.broker(7)))
        host, _, port = broker.bootstrap_servers.partition(":")
        assert [(each.host, each.port) for each in registered.endpoints] == [(host, int(port))]
        assert decode_controller("", tree.data(paths.CONTROLLER)).broker_id == 7
        assert decode_cluster_id("", tree.data(paths.CLUSTER_ID)) == broker.ready["cluster_id"]
        states = tree.states()
        assert [(state.leader, tuple(state.isr)) for state in states] == [(7, (7,)), (7, (7,))]
        born = tree.born(paths.broker(7))

        broker.stop()
        broker.start()
        produce(broker, "d")
        assert consume(broker, 1) == ["d"]

        broker.kill()
        broker.start()
        produce(broker, "e")
        assert consume(broker, 1) == ["e"]
        resource = ConfigResource(ResourceType.TOPIC, "t")
        described = admin.describe_configs([resource])[resource].result(WITHIN_S)
        assert described["retention.ms"].value == "86400000"
        assert tree.born(paths.broker(7)) > born
        for before, after in zip(states, tree.states(), strict=True):
            assert after.leader_epoch > before.leader_epoch

        (tmp_path / "meta.properties").write_text(
            f"version=0\nbroker.id=7\ncluster.id={'o' * 22}\ndirectory.id={'d' * 22}\n"
        )
        assert f"names cluster {broker.ready['cluster_id']}" in refused(server.address, tmp_path)
        tree.close()
