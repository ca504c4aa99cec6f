"""Apache Kafka's tools and Java client against three brokers started by one command."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from three_brokers import ThreeBrokers
from tools import JavaTools


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    running = ThreeBrokers(tmp_path_factory.mktemp("cluster"))
    yield running
    running.close()


def create(tools: JavaTools, cluster: ThreeBrokers, topic: str, partitions: int) -> list[str]:
    at = ["--bootstrap-server", cluster.bootstrap_servers]
    shape = ["--partitions", str(partitions), "--replication-factor", "3", "--config", "min.insync.replicas=2"]
    tools.run("kafka-topics", *at, "--create", "--topic", topic, *shape)
    cluster.until(lambda: cluster.know(topic), f"all brokers know {topic}")
    return at


def test_topics_show_leaders_replicas_and_isr(tools: JavaTools, cluster: ThreeBrokers) -> None:
    at = create(tools, cluster, "described", 3)
    described = tools.run("kafka-topics", *at, "--describe", "--topic", "described")
    assert "ReplicationFactor: 3" in described
    assert sorted(re.findall(r"Leader: (\d)", described)) == ["1", "2", "3"]
    for replicas, isr in re.findall(r"Replicas: ([\d,]+)\s+Isr: ([\d,]+)", described):
        assert sorted(replicas.split(",")) == sorted(isr.split(",")) == ["1", "2", "3"]
    assert not tools.run("kafka-topics", *at, "--describe", "--under-replicated-partitions")


def test_reassignment_and_election(tools: JavaTools, cluster: ThreeBrokers, tmp_path: Path) -> None:
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

    def elected() -> bool:
        described = tools.run("kafka-topics", *at, "--describe", "--topic", "moved")
        return "Leader: 3" in described and "Replicas: 3,1" in described

    cluster.until(elected, "every broker reports 3 as leader")


def test_quorum_cluster_and_versions(tools: JavaTools, cluster: ThreeBrokers) -> None:
    at = ["--bootstrap-server", cluster.bootstrap_servers]
    status = tools.run("kafka-metadata-quorum", *at, "describe", "--status")
    assert re.search(r"LeaderId:\s+[123]", status)
    assert len(re.findall(r'"id": \d', status)) == 3
    replication = tools.run("kafka-metadata-quorum", *at, "describe", "--replication")
    assert replication.count("Follower") == 2
    assert "Cluster ID: " in tools.run("kafka-cluster", "cluster-id", *at)
    assert tools.run("kafka-broker-api-versions", *at).count("Produce(0)") == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_idempotent_producer_over_the_stop_of_each_broker(
    tools: JavaTools, cluster: ThreeBrokers, tmp_path: Path, number: signal.Signals
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
            cluster.until(partial(larger_than, acknowledged, enough), "the producer makes progress")
            cluster.end(node_id, number)
    finally:
        producer.send_signal(signal.SIGTERM)
        producer.wait(120)
    sent = [json.loads(line) for line in acknowledged.read_text().splitlines() if '"producer_send_success"' in line]
    failed = [line for line in acknowledged.read_text().splitlines() if '"producer_send_error"' in line]
    ends = tools.run("kafka-get-offsets", *at, "--topic", topic).split()
    stored = sum(int(line.rpartition(":")[2]) for line in ends)
    everything = ["--from-beginning", "--max-messages", str(stored), "--timeout-ms", "100000"]
    values = tools.run("kafka-console-consumer", *at, "--topic", topic, *everything).split()
    assert not failed
    assert len(sent) > 500
    assert {event["value"] for event in sent} <= set(values)
    assert len(values) == len(set(values))


def larger_than(file: Path, size: int) -> bool:
    return file.stat().st_size > size
