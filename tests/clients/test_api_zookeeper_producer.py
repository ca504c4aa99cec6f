"""Producers that find their brokers in ZooKeeper (`zk.connect`) and follow them there, as Kafka's first ones did."""

from __future__ import annotations

import itertools
import time

import pytest
from simulated_zookeeper import SimulatedZooKeeper

import ottla.api.broker_watch
from ottla import Admin, ErrorCode, KafkaError, Producer, SimpleConsumer
from ottla.api.broker_watch import BrokerWatch
from ottla.client.zookeeper.zookeeper_session import UNSECURED
from ottla.protocol.znodes import paths

NUMBERS = itertools.count(1)
WITHIN_S = 120
"""Less than the library's own refresh interval of partitions (`metadata.max.age.ms`, 300 s)."""
BY_ZOOKEEPER = {"zk.connect": "simulated"}


@pytest.fixture
def zookeeper(ottla_broker, monkeypatch):
    with SimulatedZooKeeper() as running:
        running.register(ottla_broker.bootstrap_servers)
        monkeypatch.setattr(ottla.api.broker_watch, "session_below", running.connect)
        yield running


@pytest.fixture
def topic(servers, zookeeper):
    name = f"by-zookeeper-{next(NUMBERS)}"
    with Admin(servers) as admin:
        admin.create_topic(name, partitions=1, replication_factor=1)
    zookeeper.set_topic(name, 1)
    return name


def until(condition):
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def test_new_partitions_are_used_once_zookeeper_notifies(servers, zookeeper, topic):
    with Producer(config=BY_ZOOKEEPER, partitioner="random") as producer:
        assert producer.send(topic, "a").result(WITHIN_S).partition == 0
        with Admin(servers) as admin:
            admin.create_partitions(topic, 8)
        zookeeper.set_topic(topic, 8)
        until(lambda: producer.send(topic, "b").result(WITHIN_S).partition > 0)
        (session,) = zookeeper.sessions
        assert session.session in zookeeper.ensemble.connected
    assert session.session not in zookeeper.ensemble.connected


def test_so_are_they_by_a_partitioner_of_the_callers(servers, zookeeper, topic):
    with Producer(config=BY_ZOOKEEPER, partitioner=lambda _key, count: count - 1) as producer:
        assert producer.send_batch(topic, ["a"])[0].result(WITHIN_S).partition == 0
        with Admin(servers) as admin:
            admin.create_partitions(topic, 3)
        zookeeper.set_topic(topic, 3)
        until(lambda: producer.send(topic, "b").result(WITHIN_S).partition == 2)


def test_changes_are_reported_also_after_a_lost_connection(zookeeper):
    reported = []

    def is_reported(change):
        before = len(reported)
        change()
        until(lambda: len(reported) > before)

    zookeeper.set_topic("t", 1)
    watch = BrokerWatch("simulated", "PLAINTEXT", UNSECURED)
    try:
        assert watch.addresses(WITHIN_S)
        watch.on_change(lambda: reported.append(None))
        is_reported(lambda: watch.watch("t"))
        is_reported(lambda: zookeeper.write(paths.broker(2), b""))
        is_reported(lambda: zookeeper.remove(paths.broker(2)))
        is_reported(lambda: zookeeper.set_topic("new", 1))
        is_reported(lambda: zookeeper.set_topic("t", 2))
        is_reported(lambda: zookeeper.call(zookeeper.sessions[0].cut))
        for count in range(3, 9):  # more than there were watches to be set again
            is_reported(lambda count=count: zookeeper.set_topic("t", count))
    finally:
        watch.close()


@pytest.mark.parametrize("listed", ["{}", "0:{}", "7:{}, 8:127.0.0.1:1"])
def test_a_list_of_brokers_may_have_their_ids(servers, topic, listed):
    with Producer(config={"broker.list": listed.format(servers)}) as producer:
        producer.send(topic, "a")
    with SimpleConsumer(servers) as reader:
        assert reader.latest(topic, 0) == 1


def test_impossible_settings_are_reported(zookeeper):
    for arguments in (
        (None, {}),
        ("localhost:1", BY_ZOOKEEPER),
        (None, {**BY_ZOOKEEPER, "broker.list": "localhost:1"}),
    ):
        with pytest.raises(KafkaError, match="one of the argument bootstrap_servers") as bad:
            Producer(*arguments)
        assert bad.value.code is ErrorCode.INVALID_CONFIG
    zookeeper.remove(paths.broker(1))
    with pytest.raises(KafkaError, match="has no broker") as missing:
        Producer(config=BY_ZOOKEEPER)
    assert missing.value.code is ErrorCode.BROKER_NOT_AVAILABLE


def test_unreachable_zookeeper_is_reported():
    with pytest.raises(KafkaError, match=r"zk\.connect: no response from ZooKeeper") as silent:
        Producer(config={"zk.connect": "127.0.0.1:1", "max.block.ms": 50})
    assert silent.value.code is ErrorCode.NETWORK_EXCEPTION
    with pytest.raises(KafkaError) as named:
        Producer(config={"zk.connect": "h:port"})
    assert named.value.code is ErrorCode.INVALID_CONFIG
