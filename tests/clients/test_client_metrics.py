"""Metrics of librdkafka on three brokers: subscribed by a command, pushed, exported, and listed with their clients."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.proto", reason="needs the extra `telemetry`")

from confluent_kafka import Producer

from ottla.client.views.pushed_metrics import MetricsSource, PushedSeries, series_of_client
from ottla.testing import Broker

TIMEOUT_S = 120.0


def ottla(*arguments: str, code: int = 0) -> str:
    """The standard output of a command, or its error if it is to fail."""
    command = [sys.executable, "-m", "ottla", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout


def eventually(probe: Callable[[], Any], what: str) -> Any:
    until = time.monotonic() + TIMEOUT_S
    while not (found := probe()):
        assert time.monotonic() < until, what
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Broker]:
    with Broker(brokers=3, arguments=["--metrics-port", "0"]) as brokers:
        yield brokers


def urls(cluster: Broker) -> list[str]:
    return [f"http://{each['metrics']}/metrics" for each in cluster.ready["brokers"]]


def clients(cluster: Broker) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(
        ottla("client-metrics", "clients", "--json", *(part for url in urls(cluster) for part in ("--url", url)))
    )
    return found


def test_librdkafka_pushes_metrics_of_a_subscription(cluster: Broker) -> None:
    servers = ("-b", cluster.bootstrap_servers)
    setting = ("--set", "interval.ms=500", "--set", "metrics=org.apache.kafka.producer.")
    match = "match=client_id=pushing-.*,client_software_name=confluent-kafka-python"
    ottla("config", "alter", "client-metrics", "producers", *setting, "--set", match, *servers)
    subscription = {
        "name": "producers",
        "interval_ms": 500,
        "metrics": "org.apache.kafka.producer.",
        "match": match.removeprefix("match="),
    }
    assert json.loads(ottla("client-metrics", "list", "--json", *servers)) == [subscription]
    producers = [
        Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": name})
        for name in ("pushing-1", "pushing-2", "silent")
    ]
    for producer in producers:
        producer.produce("clicks", b"x")
        assert producer.flush(TIMEOUT_S) == 0

    def pushed() -> list[dict[str, str]] | None:
        found = clients(cluster)
        return found if {"pushing-1", "pushing-2"} <= {each.get("client_id") for each in found} else None

    found = eventually(pushed, "both clients pushed")
    assert {each["client_software_name"] for each in found} == {"confluent-kafka-python"}

    def values() -> list[PushedSeries]:
        sources = map(MetricsSource, urls(cluster))
        return [each for source in sources for each in series_of_client(source, found[0]["client_instance_id"])]

    series = eventually(values, "the values of a client")
    assert all(each.name.startswith("producer_") for each in series)
    assert all(float(each.value) >= 0 for each in series)
    ottla("client-metrics", "delete", "producers", *servers)
    assert "does not exist" in ottla("client-metrics", "delete", "producers", *servers, code=2)
    eventually(lambda: not clients(cluster), "without a subscription nothing is exported")
    del producers


def test_metrics_endpoint_that_can_not_be_read_is_reported() -> None:
    for url in ("http://127.0.0.1:1/metrics", "file:///etc/passwd", "http://"):
        text = ottla("client-metrics", "clients", "--url", url, code=2)
        assert text.startswith("ottla: ")
        assert url in text
        assert "Traceback" not in text
