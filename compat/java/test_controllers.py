"""Apache Kafka's tools against a dedicated controller process and a dedicated broker (KIP-919)."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from differential_pair import wait_for
from tools import JavaTools

from ottla.app.ports import free_ports

TIMEOUT_S = 120.0
HOST = "127.0.0.1"
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"


class Node:
    """One process with the given settings."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        folder.mkdir()
        self.config = folder / "server.properties"
        self.config.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
        self._data_dir, self._ready, self._log = str(folder / "data"), folder / "ready.json", folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def format(self, *arguments: str) -> None:
        command = ["-m", "ottla", "format", "--config", str(self.config), "--data-dir", self._data_dir, *arguments]
        subprocess.run([sys.executable, *command], check=True, capture_output=True, timeout=TIMEOUT_S)

    def start(self) -> dict[str, str]:
        """Start and return the content of the ready file."""
        self.launch()
        return self.ready()

    def launch(self) -> None:
        """Start the process without waiting for it."""
        command = ["-m", "ottla", "start", "--config", str(self.config), "--data-dir", self._data_dir]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *command, "--ready-file", str(self._ready)], stdout=log, stderr=log
            )

    def ready(self) -> dict[str, str]:
        """Wait for the ready file and return its content."""
        deadline = time.monotonic() + TIMEOUT_S
        while not self._ready.exists():
            if time.monotonic() > deadline or self._process is None or self._process.poll() is not None:
                raise AssertionError(f"a node is not ready:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.05)
        said: dict[str, str] = json.loads(self._ready.read_text())
        return said

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT_S)
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(TIMEOUT_S) == 0, self._log.read_text()[-4000:]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """(address of the controller, address of the broker)."""
    controller_port, port = free_ports(2)
    address = f"{HOST}:{controller_port}"
    voters = {"controller.listener.names": "CONTROLLER", "controller.quorum.voters": f"9@{address}"}
    controller = Node(
        tmp_path / "controller",
        {
            "node.id": "9",
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{address}",
            **voters,
        },
    )
    broker = Node(
        tmp_path / "broker",
        {"node.id": "1", "process.roles": "broker", "listeners": f"PLAINTEXT://{HOST}:{port}", **voters},
    )
    try:
        said = controller.start()
        broker.format("--cluster-id", said["cluster_id"])
        yield said["bootstrap_controllers"], broker.start()["bootstrap_servers"]
    finally:
        broker.stop()
        controller.stop()


def test_tools_ask_the_controller_itself(tools: JavaTools, cluster: tuple[str, str]) -> None:
    controller, broker = cluster
    at = ["--bootstrap-controller", controller]
    status = tools.run("kafka-metadata-quorum", *at, "describe", "--status")
    assert re.search(r"LeaderId:\s+9\b", status), status
    assert f"CONTROLLER://{controller}" in status
    replication = tools.run("kafka-metadata-quorum", *at, "describe", "--replication")
    assert re.search(r"^9\s.*Leader", replication, re.MULTILINE), replication
    assert re.search(r"^1\s.*Observer", replication, re.MULTILINE), replication
    cluster_id = tools.run("kafka-cluster", "cluster-id", *at)
    assert cluster_id == tools.run("kafka-cluster", "cluster-id", "--bootstrap-server", broker)
    assert "metadata.version" in tools.run("kafka-features", *at, "describe")
    alter = ["--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "log.retention.ms=600000"]
    tools.run("kafka-configs", *at, *alter)
    describe = ["--bootstrap-server", broker, "--entity-type", "brokers", "--entity-default", "--describe"]
    wait_for(lambda: "log.retention.ms=600000" in tools.run("kafka-configs", *describe), "the broker follows")


def test_tools_report_the_wrong_node_type(tools: JavaTools, cluster: tuple[str, str]) -> None:
    controller, broker = cluster
    refused = subprocess.run(
        tools.command("kafka-cluster", "cluster-id", "--bootstrap-controller", broker),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert "MismatchedEndpointType" in refused.stdout + refused.stderr
    tools.run("kafka-topics", "--bootstrap-server", broker, "--create", "--topic", "t", "--replication-factor", "1")
    assert controller


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Node]]:
    """Brokers that are voters by static settings, as is common for Apache Kafka; not started."""
    ports = free_ports(6)
    voters = ",".join(f"{number}@{HOST}:{port}" for number, port in enumerate(ports[3:], 1))
    nodes = [
        Node(
            tmp_path / str(number),
            {
                "process.roles": "broker,controller",
                "node.id": str(number),
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://{HOST}:{ports[number - 1]},CONTROLLER://{HOST}:{ports[number + 2]}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            },
        )
        for number in range(1, 4)
    ]
    for node in nodes:
        node.format("--cluster-id", CLUSTER_ID)
        node.launch()
    yield nodes
    for node in nodes:
        node.stop()


def test_static_voters_are_upgraded_to_kraft_version_1(tools: JavaTools, three: list[Node]) -> None:
    """kraft.version 1 (KIP-853): voters then have directory ids, and elections work as before."""
    servers = ",".join(node.ready()["bootstrap_servers"] for node in three)
    at = ("--bootstrap-server", servers)
    upgrade = ("kafka-features", *at, "upgrade", "--feature", "kraft.version=1")
    upgraded = "kraft.version was upgraded to 1."
    wait_for(lambda: upgraded in tools.run(*upgrade, check=False), "all voters have sent their directory ids")
    level = re.compile(r"kraft.version\s.*FinalizedVersionLevel: 1\s")
    wait_for(lambda: level.search(tools.run("kafka-features", *at, "describe")), "every broker has the level")
    describe = ("describe", "--status")
    status = tools.run("kafka-metadata-quorum", *at, *describe)
    assert len(set(re.findall(r'"directoryId": "([\w-]{22})"', status))) == 3, status
    leader, epoch = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("LeaderId", "LeaderEpoch"))
    three[leader - 1].kill()

    def elected() -> bool:
        found = re.search(r"LeaderEpoch:\s+(\d+)", tools.run("kafka-metadata-quorum", *at, *describe, check=False))
        return found is not None and int(found[1]) > epoch

    wait_for(elected, "another leader")
    made = tools.run("kafka-topics", *at, "--create", "--topic", "t", "--replication-factor", "2", "--partitions", "1")
    assert "Created topic t." in made
