"""Limits of clients by Apache Kafka's tool: set, shown, removed, and still there after a restart."""

from __future__ import annotations

import re
import time

from tools import JavaTools

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


def test_a_producer_is_told_how_long_to_wait_and_held_to_its_limit(tools: JavaTools) -> None:
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
        (told,) = re.findall(r"produce-throttle-time-max:\{.*client-id=held.*\} *: *([\d.]+)", output)
        assert float(told) > 0
