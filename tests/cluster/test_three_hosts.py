"""The example of three hosts in network namespaces, and Apache Kafka's own settings file on three nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.client.admin.cluster import Cluster

from .nodes import ZOOKEEPER, Nodes, eventually, of_the_quorum

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "three-hosts"
TIMEOUT_S = 200.0
PLACES = ("node.id", "broker.id", "controller.quorum.bootstrap.servers", "zookeeper.connect", "listeners", "log.dirs")
"""Settings that differ between nodes."""

SHIPPED = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
"""Settings of config/server.properties in Apache Kafka 4 for one node, without its comments."""
SHIPPED_FOR_ZOOKEEPER = """
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
"""Likewise in 3.9, for one node on ZooKeeper."""


@pytest.mark.promise("R1")
@of_the_quorum(reason="the example has a quorum")
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.skipif(shutil.which("ip") is None, reason="ip (iproute2) is not installed on this machine")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare (util-linux) is not installed on this machine")
def test_example_survives_the_loss_of_a_host(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(EXAMPLE / "try.sh")],
        env={**os.environ, "PATH": path, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("2000 orders acknowledged, 2000 there")
    assert not list(tmp_path.iterdir())


def test_the_settings_file_of_apache_kafka(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes()
    shipped = SHIPPED_FOR_ZOOKEEPER if ZOOKEEPER else SHIPPED
    for node in nodes.nodes:
        written = dict(line.split("=", 1) for line in node.config.read_text().splitlines())
        own = {name: value for name, value in written.items() if name in PLACES}
        if not ZOOKEEPER:
            own["advertised.listeners"] = own["listeners"]
        lines = [line for line in shipped.split() if line.split("=")[0] not in own]
        node.config.write_text("\n".join([*lines, *(f"{name}={value}" for name, value in own.items())]))
    nodes.start()
    with Cluster(nodes.bootstrap_servers) as cluster:
        cluster.topics.create("orders", partitions=3, replication_factor=3)
        eventually(
            lambda: all(len(each.isr) == 3 for each in cluster.topics.get("orders").partitions), "all are in sync"
        )
    for node in nodes.nodes:
        assert "not a known setting" not in node.log_text()
