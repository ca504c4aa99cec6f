"""Three processes from the lowest level of metadata.version to the highest, level by level, with a running producer."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.app.ports import HOST
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.model import FeatureUpdate, UpgradeType
from ottla.common.config.feature_levels import (
    CONTROLLER_REGISTRATION,
    HIGHEST_LEVEL,
    LOWEST_LEVEL,
    METADATA_LEVELS,
    METADATA_VERSION,
    release_features,
)
from ottla.common.errors import OttlaError
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.registry import ApiKey

from .nodes import Nodes, eventually
from .test_three_nodes import admin, consume, create, in_sync

TIMEOUT_S = 60


class Writer:
    """Produces numbers until it is stopped, each exactly once despite retries."""

    def __init__(self, nodes: Nodes, topic: str) -> None:
        self.acknowledged: list[str] = []
        self.failures: list[object] = []
        self._stopping = threading.Event()
        self._producer = Producer({"bootstrap.servers": nodes.bootstrap_servers, "enable.idempotence": True})
        self._topic = topic
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.produce(self._topic, str(number).encode(), on_delivery=self._delivered)
            self._producer.poll(0.01)
            number += 1

    def _delivered(self, error: object, message: object) -> None:
        if error:
            self.failures.append(error)
        else:
            self.acknowledged.append(message.value().decode())  # type: ignore[attr-defined]

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(TIMEOUT_S)
        assert self._producer.flush(TIMEOUT_S) == 0


def level_at(address: str) -> int:
    """Return the finalized level as that node knows it; 0 while it does not answer."""
    try:
        with Cluster(address) as client:
            return client.features.all()[METADATA_VERSION].level
    except OttlaError:
        return 0


def is_at(address: str, level: int) -> bool:
    return level_at(address) == level


def controllers_of(port: int) -> list[int]:
    """Return the registered controllers, as reported by a controller."""
    connection = Connection(HOST, port, client_id="test", timeout_s=TIMEOUT_S, software_version="1")
    response: DescribeClusterResponse = connection.request(
        ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(endpoint_type=2)
    )
    connection.close()
    return sorted(broker.broker_id for broker in response.brokers)


@pytest.mark.promise("R12")
def test_upgrade_through_all_levels_loses_nothing(tmp_path: Path) -> None:
    """Two voters and a broker, which was formatted without levels and reads them from the log."""
    lowest = METADATA_LEVELS[LOWEST_LEVEL].name
    nodes = Nodes(tmp_path, voters=2, first=("--release-version", lowest))
    try:
        nodes.start()
        assert [level_at(node.address) for node in nodes.nodes] == [LOWEST_LEVEL] * 3
        client = admin(*nodes.nodes)
        create(client, "t")
        writer = Writer(nodes, "t")
        with Cluster(nodes.bootstrap_servers) as cluster:
            for level in range(LOWEST_LEVEL + 1, HIGHEST_LEVEL + 1):
                cluster.features.update([FeatureUpdate(METADATA_VERSION, level, UpgradeType.UPGRADE)])
                for node in nodes.nodes:
                    eventually(partial(is_at, node.address, level), f"level {level}")
                if level == CONTROLLER_REGISTRATION:
                    eventually(lambda: controllers_of(nodes[1].place.controller_port) == [1, 2], "they are registered")
            others = {
                name: level for name, level in release_features(HIGHEST_LEVEL).items() if name != METADATA_VERSION
            }
            cluster.features.update([FeatureUpdate(name, level, UpgradeType.UPGRADE) for name, level in others.items()])
        for node in nodes.nodes:
            assert node.stop() == 0
            node.start()
            eventually(lambda: in_sync(client, "t", 3), "all replicas are in sync again")
        writer.stop()
        assert writer.failures == []
        assert sorted(consume(nodes, "t", len(writer.acknowledged))) == sorted(writer.acknowledged)
    finally:
        nodes.close()
