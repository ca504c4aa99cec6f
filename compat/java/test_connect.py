"""Kafka Connect, standalone and distributed, with its file connectors: lines of one file are copied to another."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from tools import JavaTools

from ottla.app.ports import free_ports
from ottla.testing import Broker

WAIT_S = 240.0
LINES = [f"line {number}" for number in range(50)]
PLUGINS = "plugin.discovery=only_scan\n"

pytestmark = pytest.mark.timeout(1200)  # workers start several times, which is slow on a loaded machine


@pytest.fixture
def name() -> str:
    return f"connect-{time.time_ns() // 1_000_000}"


def worker_properties(servers: str, port: int) -> str:
    return (
        f"bootstrap.servers={servers}\nlisteners=http://127.0.0.1:{port}\n"
        "key.converter=org.apache.kafka.connect.storage.StringConverter\n"
        "value.converter=org.apache.kafka.connect.storage.StringConverter\n"
        "offset.flush.interval.ms=500\nconsumer.metadata.max.age.ms=1000\nconsumer.auto.offset.reset=earliest\n"
        "task.shutdown.graceful.timeout.ms=60000\n"  # a sink that is stopped too early has not committed its offsets
    )


def connectors(name: str, source: Path, sink: Path) -> dict[str, dict[str, str]]:
    return {
        f"{name}-source": {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": str(source),
            "topic": name,
        },
        f"{name}-sink": {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "tasks.max": "2",
            "file": str(sink),
            "topics": name,
        },
    }


@contextmanager
def worker(tools: JavaTools, log: Path, tool: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = subprocess.Popen(tools.command(tool, *arguments), stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(WAIT_S)
        finally:
            process.kill()
            process.wait()


def wait_until(condition: Callable[[], object], what: str, processes: list[subprocess.Popen[bytes]], log: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        ended = [process for process in processes if process.poll() is not None]
        assert not ended, f"a worker ended: {log.read_text()[-2000:]}"
        assert time.monotonic() < deadline, f"waited {WAIT_S:g} s for {what}: {log.read_text()[-2000:]}"
        time.sleep(0.1)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_standalone(tools: JavaTools, group_broker: Broker, tmp_path: Path, name: str) -> None:
    source, sink, log = tmp_path / "in.txt", tmp_path / "out.txt", tmp_path / "worker.log"
    source.write_text("\n".join(LINES) + "\n")
    properties = tmp_path / "worker.properties"
    [port] = free_ports(1)
    properties.write_text(
        worker_properties(group_broker.bootstrap_servers, port)
        + PLUGINS
        + f"offset.storage.file.filename={tmp_path / 'offsets'}\n"
    )
    files = []
    for connector, settings in connectors(name, source, sink).items():
        file = tmp_path / f"{connector}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in {"name": connector, **settings}.items()))
        files.append(str(file))
    with worker(tools, log, "connect-standalone", str(properties), *files) as process:
        wait_until(lambda: lines_of(sink) == LINES, "the lines", [process], log)
    more = [f"more {number}" for number in range(20)]
    with source.open("a") as file:
        file.write("\n".join(more) + "\n")
    with worker(tools, log, "connect-standalone", str(properties), *files) as process:  # resumes from its offsets
        wait_until(lambda: lines_of(sink) == LINES + more, "the lines after a restart", [process], log)


def call(port: int, method: str, path: str, body: Any = None) -> Any:
    """Call Connect's REST interface; returns None while it does not respond."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return json.loads(response.read() or b"{}")
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def distributed_properties(servers: str, port: int, name: str) -> str:
    """Returns the properties of a distributed worker, which stores its state in topics."""
    topics = "".join(
        f"{kind}.storage.topic={name}-{kind}\n{kind}.storage.replication.factor=1\n"
        for kind in ("config", "offset", "status")
    )
    return (
        worker_properties(servers, port)
        + PLUGINS
        + topics
        + f"group.id={name}-workers\noffset.storage.partitions=5\nstatus.storage.partitions=3\n"
        + "session.timeout.ms=6000\nheartbeat.interval.ms=1000\nscheduled.rebalance.max.delay.ms=1000\n"
    )


def committed_lines(servers: str, topic: str) -> list[str]:
    """Returns the lines up to the current last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[str] = []
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            consumer.close()
            return found if message.error().code() == KafkaError._PARTITION_EOF else []
        found.append(message.value().decode())


def test_exactly_once_source(tools: JavaTools, group_broker: Broker, tmp_path: Path, name: str) -> None:
    """KIP-618: records and source offsets in one transaction, across a kill of the worker."""
    source, log = tmp_path / "in.txt", tmp_path / "worker.log"
    source.write_text("\n".join(LINES) + "\n")
    servers = group_broker.bootstrap_servers
    [port] = free_ports(1)
    properties = tmp_path / "worker.properties"
    properties.write_text(distributed_properties(servers, port, name) + "exactly.once.source.support=enabled\n")
    settings = connectors(name, source, tmp_path)[f"{name}-source"] | {"exactly.once.support": "required"}
    wanted = list(LINES)
    for life in range(3):
        with worker(tools, log, "connect-distributed", str(properties)) as process:
            wait_until(lambda: call(port, "GET", "/connectors") is not None, "the worker", [process], log)
            path = f"/connectors/{name}-source/config"
            wait_until(partial(call, port, "PUT", path, settings), "the connector", [process], log)
            more = [f"life {life} line {number}" for number in range(30)]
            with source.open("a") as file:
                file.write("\n".join(more) + "\n")
            wanted += more
            wait_until(lambda: len(committed_lines(servers, name)) >= len(wanted), "the lines", [process], log)  # noqa: B023
            process.kill()
    assert committed_lines(servers, name) == wanted


def test_distributed(tools: JavaTools, group_broker: Broker, tmp_path: Path, name: str) -> None:
    """Two workers form a group of protocol type `connect`; when one dies the other takes over its tasks."""
    source, sink, log = tmp_path / "in.txt", tmp_path / "out.txt", tmp_path / "workers.log"
    source.write_text("\n".join(LINES) + "\n")
    ports = free_ports(2)
    files = []
    for number, port in enumerate(ports):
        properties = tmp_path / f"worker{number}.properties"
        properties.write_text(distributed_properties(group_broker.bootstrap_servers, port, name))
        files.append(str(properties))
    with (
        worker(tools, log, "connect-distributed", files[0]) as first,
        worker(tools, log, "connect-distributed", files[1]) as second,
    ):
        both = [first, second]
        for port in ports:
            wait_until(lambda: call(port, "GET", "/connectors") is not None, "the workers", both, log)  # noqa: B023
        for connector, settings in connectors(name, source, sink).items():
            path = f"/connectors/{connector}/config"
            wait_until(lambda: call(ports[0], "PUT", path, settings), "the connector", both, log)  # noqa: B023
        wait_until(lambda: lines_of(sink) == LINES, "the lines", both, log)
        listed = tools.run("kafka-groups", "--bootstrap-server", group_broker.bootstrap_servers, "--list")
        assert any(line.split()[:3] == [f"{name}-workers", "Classic", "connect"] for line in listed.splitlines()), (
            listed
        )
        first.kill()
        more = [f"more {number}" for number in range(20)]
        with source.open("a") as file:
            file.write("\n".join(more) + "\n")
        wait_until(lambda: set(lines_of(sink)) == set(LINES + more), "the lines by the survivor", [second], log)
