"""Apache Kafka's tools and its Java client against three brokers that one command started."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tools import JavaTools

START_TIMEOUT_S = 60.0
SETTLE_TIMEOUT_S = 60.0


class Cluster:
    """`ottla start --brokers 3` in a directory of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ready = folder / "ready.json"
        self._log = (folder / "cluster.log").open("wb")
        command = ["-m", "ottla", "start", "--brokers", "3", "--port", "0"]
        command += ["--data-dir", str(folder / "data"), "--ready-file", str(ready)]
        command += ["--set", "broker.session.timeout.ms=3000", "--set", "broker.heartbeat.interval.ms=300"]
        self._process = subprocess.Popen(
            [sys.executable, *command], stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True
        )
        self.until(ready.exists, "three brokers are ready", START_TIMEOUT_S)
        self.bootstrap_servers = str(json.loads(ready.read_text())["bootstrap_servers"])

    def log(self) -> str:
        """What supervisor and brokers wrote."""
        return (self._folder / "cluster.log").read_text(errors="replace")

    def until(self, condition: Callable[[], object], what: str, timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        """Wait for `condition`."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise AssertionError(f"not within {timeout_s:g} s: {what}\n{self.log()[-4000:]}")
            time.sleep(0.1)

    def pid(self, node_id: int) -> int:
        """The process of one broker: the child of the supervisor that was started with its config."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for child in children:
            if f"broker-{node_id}.properties".encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
        raise AssertionError(f"broker {node_id} has no process")

    def close(self) -> None:
        """Stop all; the supervisor says by its exit code whether that went well."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(60)
        self._log.close()
        assert code == 0, self.log()[-4000:]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("cluster"))
    yield running
    running.close()


def create(tools: JavaTools, cluster: Cluster, topic: str, partitions: int) -> list[str]:
    at = ["--bootstrap-server", cluster.bootstrap_servers]
    shape = ["--partitions", str(partitions), "--replication-factor", "3", "--config", "min.insync.replicas=2"]
    tools.run("kafka-topics", *at, "--create", "--topic", topic, *shape)
    return at


def test_topics_show_leaders_replicas_and_isr(tools: JavaTools, cluster: Cluster) -> None:
    at = create(tools, cluster, "described", 3)
    described = tools.run("kafka-topics", *at, "--describe", "--topic", "described")
    assert "ReplicationFactor: 3" in described
    assert sorted(re.findall(r"Leader: (\d)", described)) == ["1", "2", "3"]
    for replicas, isr in re.findall(r"Replicas: ([\d,]+)\s+Isr: ([\d,]+)", described):
        assert sorted(replicas.split(",")) == sorted(isr.split(",")) == ["1", "2", "3"]
    assert not tools.run("kafka-topics", *at, "--describe", "--under-replicated-partitions")


def test_reassignment_and_election(tools: JavaTools, cluster: Cluster, tmp_path: Path) -> None:
    at = create(tools, cluster, "moved", 1)
    plan = tmp_path / "plan.json"
    moves = [{"topic": "moved", "partition": 0, "replicas": [3, 1]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    arguments = ["--reassignment-json-file", str(plan)]
    tools.run("kafka-reassign-partitions", *at, *arguments, "--execute")

    def moved() -> bool:
        return "is completed" in tools.run("kafka-reassign-partitions", *at, *arguments, "--verify")

    cluster.until(moved, "the replicas moved")
    tools.run("kafka-leader-election", *at, "--election-type", "preferred", "--topic", "moved", "--partition", "0")
    described = tools.run("kafka-topics", *at, "--describe", "--topic", "moved")
    assert "Leader: 3" in described
    assert "Replicas: 3,1" in described


def test_quorum_cluster_and_versions(tools: JavaTools, cluster: Cluster) -> None:
    at = ["--bootstrap-server", cluster.bootstrap_servers]
    status = tools.run("kafka-metadata-quorum", *at, "describe", "--status")
    assert re.search(r"LeaderId:\s+[123]", status)
    assert len(re.findall(r'"id": \d', status)) == 3
    replication = tools.run("kafka-metadata-quorum", *at, "describe", "--replication")
    assert replication.count("Follower") == 2
    assert "Cluster ID: " in tools.run("kafka-cluster", "cluster-id", *at)
    assert tools.run("kafka-broker-api-versions", *at).count("Produce(0)") == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_idempotent_producer_over_the_end_of_each_broker(
    tools: JavaTools, cluster: Cluster, tmp_path: Path, number: signal.Signals
) -> None:
    topic = f"rolled-{number.name.lower()}"
    at = create(tools, cluster, topic, 3)
    acknowledged = tmp_path / "acknowledged"
    config = tmp_path / "producer.properties"
    config.write_text("enable.idempotence=true\nacks=all\nretries=2147483647\ndelivery.timeout.ms=120000\n")
    command = tools.command(
        *("kafka-verifiable-producer", *at, "--topic", topic, "--throughput", "500", "--acks", "-1"),
        *("--producer.config", str(config)),
    )
    with acknowledged.open("wb") as output:
        producer = subprocess.Popen(command, stdout=output)
    try:
        for node_id in (1, 2, 3):
            enough = acknowledged.stat().st_size + 20_000
            cluster.until(partial(larger_than, acknowledged, enough), "the producer goes on")
            pid = cluster.pid(node_id)
            os.kill(pid, number)
            cluster.until(lambda: in_sync(tools, at, topic), "all replicas are in sync again")
    finally:
        producer.send_signal(signal.SIGTERM)
        producer.wait(60)
    sent = [json.loads(line) for line in acknowledged.read_text().splitlines() if '"producer_send_success"' in line]
    failed = [line for line in acknowledged.read_text().splitlines() if '"producer_send_error"' in line]
    ends = tools.run("kafka-get-offsets", *at, "--topic", topic).split()
    stored = sum(int(line.rpartition(":")[2]) for line in ends)
    everything = ["--from-beginning", "--max-messages", str(stored), "--timeout-ms", "60000"]
    values = tools.run("kafka-console-consumer", *at, "--topic", topic, *everything).split()
    assert not failed
    assert len(sent) > 500
    assert {event["value"] for event in sent} <= set(values)
    assert len(values) == len(set(values))


def larger_than(file: Path, size: int) -> bool:
    return file.stat().st_size > size


def in_sync(tools: JavaTools, at: list[str], topic: str) -> bool:
    described = tools.run("kafka-topics", *at, "--describe", "--topic", topic, check=False)
    found = re.findall(r"Isr: ([\d,]+)", described)
    return len(found) == 3 and all(len(isr.split(",")) == 3 for isr in found)
