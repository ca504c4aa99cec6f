"""Client quotas by Apache Kafka's tool: set, described, removed, and persisted over a restart."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack

import pytest
from apache import Kafka
from confluent_kafka import Producer
from differential_pair import CONFIGS
from tools import JavaTools

from ottla.client.admin.cluster import Cluster
from ottla.testing import Broker

DEFAULT = "--entity-default"
LIMITS = (
    (("--entity-type", "clients", "--entity-name", "app"), "consumer_byte_rate", "2048.0"),
    (("--entity-type", "users", DEFAULT), "request_percentage", "12.5"),
    (("--entity-type", "users", "--entity-name", "alice"), "producer_byte_rate", "1024.0"),
    (("--entity-type", "users", DEFAULT, "--entity-type", "clients", DEFAULT), "producer_byte_rate", "4096.0"),
    (("--entity-type", "ips", "--entity-name", "127.0.0.1"), "connection_creation_rate", "5.0"),
)


def test_limits_of_users_clients_and_addresses(tools: JavaTools) -> None:
    with Broker() as broker:
        at = ["--bootstrap-server", broker.bootstrap_servers]
        for entity, key, value in LIMITS:
            tools.run("kafka-configs", *at, *entity, "--alter", "--add-config", f"{key}={value.removesuffix('.0')}")
        broker.restart()
        at = ["--bootstrap-server", broker.bootstrap_servers]
        for entity, key, value in LIMITS:
            assert f"{key}={value}" in tools.run("kafka-configs", *at, *entity, "--describe"), entity
        entity, key, _ = LIMITS[0]
        tools.run("kafka-configs", *at, *entity, "--alter", "--delete-config", key)
        assert key not in tools.run("kafka-configs", *at, *entity, "--describe")


def test_producer_reports_throttle_time_and_keeps_quota(tools: JavaTools) -> None:
    with Broker(configs={"quota.window.num": 2}) as broker:
        at = ["--bootstrap-server", broker.bootstrap_servers]
        entity = ["--entity-type", "clients", "--entity-name", "held"]
        tools.run("kafka-configs", *at, *entity, "--alter", "--add-config", "producer_byte_rate=200000")
        begin = time.monotonic()
        output = tools.run(
            "kafka-producer-perf-test",
            *["--topic", "t", "--num-records", "600", "--record-size", "1000", "--throughput", "-1", "--print-metrics"],
            *["--producer-props", f"bootstrap.servers={broker.bootstrap_servers}", "client.id=held"],
        )
        assert "600 records sent" in output
        assert time.monotonic() - begin >= 0.9 * (600 * 1000 / 200_000 - 1)
        (throttle_ms,) = re.findall(r"produce-throttle-time-max:\{.*client-id=held.*\} *: *([\d.]+)", output)
        assert float(throttle_ms) > 0


QUOTA = 1_000_000
MEASURED_S = 10.0
MOST_ROUNDS = 24
VALUE = bytes(1000)


class Measured:
    """librdkafka, which ignores throttle times, on a broker with a quota; counts the acknowledged bytes."""

    def __init__(self, bootstrap_servers: str) -> None:
        with Cluster(bootstrap_servers, client_id="admin", timeout_s=30) as cluster:
            cluster.topics.create("held", 1)
            cluster.quotas.alter([("client-id", "held")], {"producer_byte_rate": QUOTA})
        self.taken = 0
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": "held",
            "batch.size": 16_384,
            "linger.ms": 20,
            "log_level": 0,
        }
        self._producer = Producer({**settings, "queue.buffering.max.messages": 1000, "on_delivery": self._delivered})

    def _delivered(self, error: object, _message: object) -> None:
        assert error is None, error
        self.taken += len(VALUE)

    def fill_queue(self) -> None:
        """Fill the producer's queue."""
        try:
            while True:
                self._producer.produce("held", VALUE)
        except BufferError:
            self._producer.poll(0.01)


@pytest.mark.timeout(600)
def test_quota_yields_the_same_rate_as_in_apache_kafka(java_classpath: str) -> None:
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka(java_classpath, CONFIGS))
        kafka.format()
        kafka.start()
        broker = stack.enter_context(Broker())
        both = [Measured(each.bootstrap_servers) for each in (kafka, broker)]
        rounds = []
        for _ in range(MOST_ROUNDS):
            theirs, ours = round_of(both)
            rounds.append(f"Apache Kafka took {theirs}, Ottla {ours}")
            reached = theirs >= 0.9 * QUOTA * MEASURED_S
            if reached and ours == pytest.approx(theirs, rel=0.05):
                break
        else:
            raise AssertionError(f"in no {MEASURED_S:g} s both had {QUOTA} B/s: {rounds}")


def round_of(both: list[Measured]) -> list[int]:
    """Returns the bytes acknowledged by each broker in the next `MEASURED_S` seconds.

    The machine may delay either client at both ends of a round, so one round proves nothing. A broker with a wrong rate
    deviates in every round.
    """
    before = [measured.taken for measured in both]
    end = time.monotonic() + MEASURED_S
    while time.monotonic() < end:
        for measured in both:
            measured.fill_queue()
    return [measured.taken - taken for measured, taken in zip(both, before, strict=True)]
