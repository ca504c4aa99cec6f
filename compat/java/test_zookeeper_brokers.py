"""Three Ottla brokers on a real ZooKeeper: kill -9 of the controller, a follower and a leader, clean stops, SASL."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from zookeeper_tree import ZooKeeper

from ottla.app.ports import free_ports
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import decode_controller, decode_controller_epoch
from ottla.protocol.znodes.topics import PartitionState, decode_state
from ottla.testing import Broker

WITHIN_S = 120
SESSION_MS = 10_000
"""A successor of a killed broker waits for the session's expiry; a shorter one could expire on a busy machine."""
START_S = 180.0
IDS = (1, 2, 3)
PARTITIONS = 3
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Cluster:
    """Three brokers on one ZooKeeper, and a separate client that reads its znodes."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        self.brokers = {
            each: stack.enter_context(
                Broker(
                    configs={
                        "zookeeper.connect": address,
                        "zookeeper.session.timeout.ms": SESSION_MS,
                        "broker.id": each,
                        "offsets.topic.num.partitions": 3,
                        "transaction.state.log.num.partitions": 3,
                        "group.initial.rebalance.delay.ms": 0,
                    },
                    start_timeout_s=START_S,
                )
            )
            for each in IDS
        }
        self._client = KazooClient(address)
        self._client.start(WITHIN_S)
        stack.callback(self._client.close)
        stack.callback(self._client.stop)
        self.reigns: dict[int, int] = {}
        """The broker id of the claim seen in each controller epoch."""

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def controller(self) -> int | None:
        """Returns the broker id in the controller znode; None if the epoch changed during the read."""
        epoch = self._client.get(paths.CONTROLLER_EPOCH)[0]
        if not self._client.exists(paths.CONTROLLER):
            return None
        broker_id = decode_controller("", self._client.get(paths.CONTROLLER)[0]).broker_id
        if self._client.get(paths.CONTROLLER_EPOCH)[0] != epoch:
            return None
        number = decode_controller_epoch("", epoch)
        assert self.reigns.setdefault(number, broker_id) == broker_id, "two controllers of one epoch"
        return broker_id

    def state(self, partition: int) -> PartitionState:
        return decode_state("", self._client.get(paths.state("t", partition))[0])

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline, "timed out"
            time.sleep(0.1)

    def rules(self) -> int:
        self.until(lambda: self.controller() is not None)
        found = self.controller()
        return self.rules() if found is None else found

    def whole(self) -> bool:
        return all(set(self.state(number).isr) == set(IDS) for number in range(PARTITIONS))


class Load(threading.Thread):
    """Writes until `end`, and records the acknowledged values."""

    def __init__(self, cluster: Cluster, transactional_id: str | None = None) -> None:
        super().__init__(daemon=True)
        options: dict[str, object] = {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            # With several in flight a record may be duplicated after a leader change (librdkafka's issue 4953).
            "max.in.flight.requests.per.connection": 1,
            "message.timeout.ms": 300_000,
            "log_level": 0,
        }
        self._prefix = transactional_id or "plain"
        self._transactional = transactional_id is not None
        if transactional_id is not None:
            options.update({"transactional.id": transactional_id, "transaction.timeout.ms": 300_000})
        self._producer = Producer(options)
        self._over = threading.Event()
        self.acknowledged: list[str] = []
        self.failed: list[object] = []
        self._number = 0

    def run(self) -> None:
        if self._transactional:
            self._retried(lambda: self._producer.init_transactions(WITHIN_S))
        while not self._over.is_set():
            self._transaction() if self._transactional else self._record()
        self._producer.flush(WITHIN_S)

    def _record(self) -> None:
        self._produce(self.acknowledged)
        self._producer.poll(0.01)

    def _produce(self, values: list[str]) -> None:
        value = f"{self._prefix}-{self._number}"
        self._number += 1

        def delivered(error: object, _message: object) -> None:
            (self.failed if error else values).append(error if error else value)

        self._producer.produce("t", value, partition=self._number % PARTITIONS, on_delivery=delivered)

    def _transaction(self) -> None:
        self._producer.begin_transaction()
        values: list[str] = []
        for _ in range(3):
            self._produce(values)
        try:
            self._retried(lambda: self._producer.commit_transaction(WITHIN_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._retried(lambda: self._producer.abort_transaction(WITHIN_S))
            self.failed.clear()
        else:
            self.acknowledged += values

    def _retried(self, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return

    def end(self) -> list[str]:
        self._over.set()
        self.join(WITHIN_S)
        assert not self.is_alive()
        assert not self.failed
        assert self.acknowledged
        return self.acknowledged

    def make_progress(self, cluster: Cluster) -> None:
        """Wait until new records are acknowledged."""
        before = len(self.acknowledged)
        cluster.until(lambda: len(self.acknowledged) > before + 5 or not self.is_alive())
        assert self.is_alive()


def stored(cluster: Cluster) -> list[str]:
    """Returns all committed records of the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("t", number, 0) for number in range(PARTITIONS)])
    found: list[str] = []
    ends = 0
    while ends < PARTITIONS:
        message = consumer.poll(WITHIN_S)
        assert message is not None
        if message.error() is None:
            found.append(message.value().decode())
        else:
            ends += 1
    consumer.close()
    return found


@pytest.fixture
def cluster(zookeeper_classpath: str) -> Iterator[Cluster]:
    with ZooKeeper(zookeeper_classpath) as server, ExitStack() as stack:
        yield Cluster(server.address, stack)


@pytest.mark.promise("Z1")
def test_nothing_acknowledged_is_lost(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    topic = NewTopic("t", PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])["t"].result(WITHIN_S)
    loads = [Load(cluster), Load(cluster, "x")]
    for load in loads:
        load.start()
    for role in ("controller", "follower", "leader"):
        rules = cluster.rules()
        leads = cluster.state(0).leader
        victim = {
            "controller": rules,
            "leader": leads,
            "follower": next(each for each in IDS if each not in (rules, leads)),
        }[role]
        cluster.brokers[victim].kill()
        cluster.until(lambda victim=victim: all(cluster.state(n).leader != victim for n in range(PARTITIONS)))
        for load in loads:
            load.make_progress(cluster)
        cluster.brokers[victim].start()
        cluster.until(cluster.whole)
    for victim in (cluster.rules(), next(each for each in IDS if each != cluster.rules())):
        cluster.brokers[victim].stop()
        for load in loads:
            load.make_progress(cluster)
        cluster.brokers[victim].start()
        cluster.until(cluster.whole)
    acknowledged = [value for load in loads for value in load.end()]
    found = stored(cluster)
    assert set(acknowledged) <= set(found)
    assert len(found) == len(set(found)), "a record was written twice"
    assert len(set(cluster.reigns.values())) > 1


def of_sasl(address: str, broker_id: int, clients: int, brokers: int) -> dict[str, object]:
    """Returns the settings of a broker with one listener for clients and a SASL listener for brokers."""
    user = 'username="node" password="p" user_node="p"'
    return {
        "zookeeper.connect": address,
        "broker.id": broker_id,
        "listeners": f"PLAINTEXT://127.0.0.1:{clients},INTERNAL://127.0.0.1:{brokers}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.internal.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {user};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node",
        "allow.everyone.if.no.acl.found": "true",
    }


def test_brokers_authenticate_to_each_other(zookeeper_classpath: str) -> None:
    with ZooKeeper(zookeeper_classpath) as server, ExitStack() as stack:
        brokers = []
        for each in IDS:
            clients, internal = free_ports(2)
            configs = of_sasl(server.address, each, clients, internal)
            brokers.append(stack.enter_context(Broker(configs=configs, port=clients, start_timeout_s=START_S)))
        last = {"bootstrap.servers": brokers[-1].bootstrap_servers, "log_level": 0}
        topic = NewTopic("t", 1, 3, config={"min.insync.replicas": "3"})
        admin = AdminClient(last)
        admin.create_topics([topic])["t"].result(WITHIN_S)
        producer = Producer({**last, "transactional.id": "x"})
        producer.init_transactions(WITHIN_S)
        producer.begin_transaction()
        producer.produce("t", "a")
        producer.commit_transaction(WITHIN_S)
