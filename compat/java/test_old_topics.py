"""Topics and partitions that `kafka-topics --zookeeper` writes directly, while an Ottla controller is running."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from old_kafka import WITHIN_S, OldPrograms, ottla_on

from ottla.client.admin.cluster import Cluster
from ottla.common.errors import OttlaError

TOPIC = "written-by-a-tool"


def partitions(servers: str) -> int:
    """Returns the number of the topic's partitions with a leader."""
    try:
        with Cluster(servers) as cluster:
            return sum(each.leader >= 0 for each in cluster.topics.get(TOPIC).partitions)
    except OttlaError:
        return 0


def has(servers: str, count: int) -> bool:
    """Waits until the topic has `count` partitions."""
    until = time.monotonic() + WITHIN_S
    while partitions(servers) != count and time.monotonic() < until:
        time.sleep(0.1)
    return partitions(servers) == count


@pytest.mark.parametrize("version", ["0.8", "0.9"])
def test_controller_takes_up_the_changes(kafka_of: Callable[[str], str], tmp_path: Path, version: str) -> None:
    classpath = kafka_of(version)
    programs = OldPrograms(classpath, tmp_path)

    def topics(*arguments: str) -> str:
        return programs.run("kafka.admin.TopicCommand", "--zookeeper", zookeeper, *arguments)

    with ottla_on(classpath) as (zookeeper, broker):
        servers = broker.bootstrap_servers
        created = ["--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=12345"]
        topics("--create", "--topic", TOPIC, *created)
        assert has(servers, 2)
        programs.produce(servers, TOPIC, ["first"])
        topics("--alter", "--topic", TOPIC, "--partitions", "3")
        assert has(servers, 3)
        programs.produce(servers, TOPIC, ["second"])
        described = topics("--describe", "--topic", TOPIC)
        assert described.count("Leader: 7\tReplicas: 7\tIsr: 7") == 3, described
        assert "retention.ms=12345" in described
        topics("--delete", "--topic", TOPIC)
        assert has(servers, 0)
