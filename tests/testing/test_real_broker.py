"""The fixtures and the harness with a real broker."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from confluent_kafka import Producer

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import EARLIEST_TIMESTAMP, ResourceType
from ottla.testing import Broker, BrokerFailure

MOST_TIMES = 20
ATTEMPTS = 10


def test_the_fixture_is_a_broker_that_answers(ottla_broker):
    with Cluster(ottla_broker.bootstrap_servers) as cluster:
        info = cluster.describe()
    assert info.cluster_id == ottla_broker.ready["cluster_id"]
    assert [(broker.host, broker.port) for broker in info.brokers] == [("127.0.0.1", ottla_broker.port)]
    assert ottla_broker.data_dir.is_dir()


def test_first_group_join_has_no_rebalance_delay(ottla_broker, ottla_broker_factory):
    name = "group.initial.rebalance.delay.ms"
    values = []
    for broker in (ottla_broker, ottla_broker_factory(configs={name: 70})):
        with Cluster(broker.bootstrap_servers) as cluster:
            (entry,) = cluster.configs.describe(ResourceType.BROKER, "1", [name])
        values.append(entry.value)
    assert values == ["0", "70"]


@pytest.mark.parametrize(("configs", "old_starts_at"), [({}, 0), ({"log.retention.ms": 1000}, 1)])
def test_records_of_long_ago_stay(ottla_broker_factory, configs, old_starts_at):
    """Retention would delete their segment half a minute after the start, during some other test."""
    broker = ottla_broker_factory(configs={"log.initial.task.delay.ms": 100, **configs})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    with Cluster(broker.bootstrap_servers) as cluster:
        for name in ("old", "brief"):
            cluster.topics.create(name, 1, configs={"retention.ms": "1000"} if name == "brief" else {})
            producer.produce(name, b"v", timestamp=1_000_000_000_000)
        assert producer.flush(20) == 0
        broker.restart()  # so that retention begins with both in place
        positions = dict.fromkeys([("old", 0), ("brief", 0)], EARLIEST_TIMESTAMP)
        until = time.monotonic() + 60
        while cluster.records.list_offsets(positions)["brief", 0].offset == 0:
            assert time.monotonic() < until, "retention has run"
        assert cluster.records.list_offsets(positions)["old", 0].offset == old_starts_at


def test_factory_brokers_are_apart(ottla_broker_factory):
    first, second = ottla_broker_factory(), ottla_broker_factory(configs={"auto.create.topics.enable": False})
    assert first.port != second.port
    with Cluster(first.bootstrap_servers) as cluster:
        cluster.topics.create("only-here")
    with Cluster(second.bootstrap_servers) as cluster:
        assert "only-here" not in cluster.topics.all()


@pytest.mark.parametrize("crash", [False, True])
def test_topics_outlive_a_restart(ottla_broker_factory, crash):
    broker = ottla_broker_factory()
    with Cluster(broker.bootstrap_servers, timeout_s=10) as cluster:
        cluster.topics.create("kept", 2)
        before = cluster.topics.get("kept")
        broker.restart(crash=crash)
        after = cluster.topics.get("kept")
    assert after.topic_id == before.topic_id
    assert [p.leader_epoch for p in after.partitions] > [p.leader_epoch for p in before.partitions]


def test_a_stop_is_clean(ottla_broker_factory):
    broker = ottla_broker_factory()
    assert broker.stop() == 0
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    assert broker.stop() == 0
    assert not broker.running


def test_invalid_setting_error_contains_broker_message():
    broker = Broker(configs={"num.partitions": "many"})
    with pytest.raises(BrokerFailure, match=r"exit code 2(.|\n)*num\.partitions"):
        broker.start()
    broker.close()


def test_port_in_use_error_contains_broker_message():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = Broker(port=port)
        with pytest.raises(BrokerFailure, match=rf"exit code 2(.|\n)*{port}"):
            broker.start()
        broker.close()


def test_port_is_reserved_between_stop_and_start(ottla_broker_factory):
    broker = ottla_broker_factory()
    address = ("127.0.0.1", broker.port)
    broker.kill()
    with socket.socket() as other, pytest.raises(OSError, match="already in use"):
        other.bind(address)
    broker.start()
    assert broker.port == address[1]
    with Cluster(broker.bootstrap_servers) as cluster:
        assert len(cluster.describe().brokers) == 1
    broker.close()
    with socket.create_server(address):
        """Other processes can bind it now."""


def test_a_broker_that_is_killed_behind_the_harness_is_reported():
    broker = Broker().start()
    with socket.create_connection(("127.0.0.1", broker.port)) as connection:
        os.kill(broker.pid, signal.SIGKILL)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    with pytest.raises(BrokerFailure, match="exit code -9"):
        broker.close()


def test_start_time_is_a_few_interpreter_starts(ottla_broker_factory):
    """From the start of the process to the first answer, ten times as long, on idle machines and on busy ones.

    Both of one attempt meet the same machine; a moment that was busy for one of them only costs another attempt.
    """

    def attempt() -> float:
        begin = time.monotonic()
        subprocess.run([sys.executable, "-c", "import asyncio, json, logging, ssl"], check=True)
        bare_s = time.monotonic() - begin
        begin = time.monotonic()
        broker = ottla_broker_factory()
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.describe()
        start_s = time.monotonic() - begin
        broker.kill()
        return start_s / bare_s

    ratios: list[float] = []
    while not any(ratio < MOST_TIMES for ratio in ratios):
        assert len(ratios) < ATTEMPTS, ratios
        ratios.append(attempt())
