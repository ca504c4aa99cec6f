"""Three real processes on loopback: formatted, started, killed, restarted with and without their directories."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import __version__
from ottla.app.ports import free_ports
from ottla.client.wire.connection import Connection
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import uuid_from_string
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumPartitionResponse,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.storage.files.names import METADATA_TOPIC

CLUSTER_ID = "2v6DyEs_QqqMYFjaPzw5Ow"
DIRECTORY_IDS = {1: "JEXY6aqzQY-32P5TStzaFg", 2: "MvDxzVmcRsaTz33bUuRU6A", 3: "07R5amHmR32VDA6jHkGbTA"}
PATIENCE_S = 60.0


def until(condition: Callable[[], Any]) -> Any:
    """Return the first true value of `condition`, which may fail to connect for a while."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            value = condition()
        except (KafkaError, OSError):
            value = None
        if value:
            return value
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


class Node:
    """One process and its directory."""

    def __init__(self, root: Path, node_id: int, port: int, controller_port: int, controllers: str) -> None:
        self.node_id = node_id
        self.port = port
        self.controller_port = controller_port
        self.data_dir = root / f"data-{node_id}"
        self.log_path = root / f"log-{node_id}"
        self.ready_path = root / f"ready-{node_id}.json"
        self.config_path = root / f"server-{node_id}.properties"
        self.config_path.write_text(
            f"node.id={node_id}\nprocess.roles=broker,controller\nlog.dirs={self.data_dir}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}\n"
            f"controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers={controllers}\n"
            "broker.session.timeout.ms=3000\nbroker.heartbeat.interval.ms=300\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def ottla(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ottla", *arguments, "--config", str(self.config_path)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    def voters(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `ottla cluster voters` against this node."""
        command = [sys.executable, "-m", "ottla", "cluster", "voters", *arguments, "-b", f"127.0.0.1:{self.port}"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    def format(self, *arguments: str) -> str:
        """Format the directory; return its id."""
        done = self.ottla("format", "--cluster-id", CLUSTER_ID, *arguments)
        assert done.returncode == 0, done.stderr
        return dict(line.split("=") for line in done.stdout.splitlines())["directory.id"]

    def start(self) -> None:
        self.ready_path.unlink(missing_ok=True)
        command = [sys.executable, "-m", "ottla", "start", "--config", str(self.config_path)]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--ready-file", str(self.ready_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log_path.read_text()
        return self.ready_path.exists() and bool(json.loads(self.ready_path.read_bytes()))

    def end(self, number: int) -> int:
        assert self.process is not None
        os.kill(self.process.pid, number)
        code = self.process.wait(PATIENCE_S)
        self.process = None
        return code

    def request(self, key: ApiKey, message: object) -> Any:
        connection = Connection("127.0.0.1", self.port, client_id="test", timeout_s=10.0, software_version=__version__)
        try:
            return connection.request(key, message)
        finally:
            connection.close()

    def quorum(self) -> DescribeQuorumPartitionResponse:
        topic = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition()])
        response = self.request(ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest(topics=[topic]))
        assert response.error_code == 0
        found: DescribeQuorumPartitionResponse = response.topics[0].partitions[0]
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code), "not the leader")
        return found

    def create_topic(self, name: str) -> bool:
        """Return whether the topic exists now."""
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=3)
        response = self.request(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        return response.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[int, Node]]:
    """Three nodes, formatted as first voters and started."""
    ports = free_ports(6)
    controllers = ",".join(f"127.0.0.1:{port}" for port in ports[3:])
    nodes = {
        node_id: Node(tmp_path, node_id, ports[node_id - 1], ports[node_id + 2], controllers) for node_id in (1, 2, 3)
    }
    voters = ",".join(
        f"{node_id}@127.0.0.1:{node.controller_port}:{DIRECTORY_IDS[node_id]}" for node_id, node in nodes.items()
    )
    for node_id, node in nodes.items():
        assert node.format("--initial-controllers", voters) == DIRECTORY_IDS[node_id]
    for node in nodes.values():
        node.start()
    for node in nodes.values():
        until(node.is_ready)
    yield nodes
    for node in nodes.values():
        if node.process is not None:
            node.process.kill()
            node.process.wait()


def all_caught_up(nodes: dict[int, Node], through: Node) -> bool:
    """Return whether every node has fetched the leader's complete log."""
    found = through.quorum()
    replicas = [*found.current_voters, *found.observers]
    return len({each.replica_id for each in replicas}) == len(nodes) and all(
        each.log_end_offset >= found.high_watermark for each in replicas
    )


def has_caught_up(found: DescribeQuorumPartitionResponse) -> bool:
    """Return whether there is an observer with the leader's complete log."""
    return bool(found.observers) and found.observers[0].log_end_offset >= found.high_watermark


def test_killed_leader_rejoins(nodes: dict[int, Node]) -> None:
    assert until(lambda: nodes[1].create_topic("before"))
    before = until(nodes[2].quorum)
    assert sorted(each.replica_id for each in before.current_voters) == [1, 2, 3]
    leader = nodes[before.leader_id]
    assert leader.end(signal.SIGKILL) == -signal.SIGKILL
    other = next(node for node in nodes.values() if node is not leader)
    after = until(lambda: (found := other.quorum()).leader_epoch > before.leader_epoch and found)
    assert after.leader_id != leader.node_id
    assert after.high_watermark >= before.high_watermark
    leader.start()
    until(leader.is_ready)
    assert until(lambda: leader.create_topic("after"))
    until(lambda: all_caught_up(nodes, leader))


def test_stopped_leader_hands_over(nodes: dict[int, Node]) -> None:
    before = until(nodes[1].quorum)
    leader = nodes[before.leader_id]
    assert leader.end(signal.SIGTERM) == 0
    other = next(node for node in nodes.values() if node is not leader)
    after = until(lambda: (found := other.quorum()).leader_epoch > before.leader_epoch and found)
    assert after.leader_id != leader.node_id


def test_voter_without_directory_returns_as_observer(nodes: dict[int, Node]) -> None:
    before = until(nodes[1].quorum)
    lost = next(node for node in nodes.values() if node.node_id != before.leader_id)
    lost.end(signal.SIGKILL)
    shutil.rmtree(lost.data_dir)
    lost.start()
    assert lost.process is not None
    assert lost.process.wait(PATIENCE_S) == 2
    assert "ottla format" in lost.log_path.read_text()
    directory_id = lost.format("--no-initial-controllers")
    assert directory_id != DIRECTORY_IDS[lost.node_id]
    lost.start()
    until(lost.is_ready)
    found = until(lambda: (found := lost.quorum()).observers and found)
    assert [each.replica_id for each in found.observers] == [lost.node_id]
    assert bytes(found.observers[0].replica_directory_id) == uuid_from_string(directory_id)
    until(lambda: has_caught_up(lost.quorum()))
    node = str(lost.node_id)
    add = ("add", node, "--listener", f"CONTROLLER://127.0.0.1:{lost.controller_port}", "--json")
    refusals = (
        (1, add, f"node {node} is a voter already"),
        (
            2,
            ("remove", node, "--directory-id", directory_id),
            f"give --directory-id with one of {DIRECTORY_IDS[lost.node_id]}",
        ),
    )
    for code, arguments, words in refusals:
        result = lost.voters(*arguments)
        assert (result.returncode, result.stdout) == (code, "")
        assert words in result.stderr
    result = lost.voters("remove", node)
    assert result.stdout == f"Node {node} with directory {DIRECTORY_IDS[lost.node_id]} is no longer a voter.\n", result
    assert f"node {node} is not a quorum voter" in lost.voters("remove", node).stderr
    result = lost.voters(*add, "--directory-id", directory_id)
    assert result.returncode == 0, result
    assert json.loads(result.stdout) == {"added": lost.node_id, "directory_id": directory_id}
    after = until(lost.quorum)
    assert sorted(each.replica_id for each in after.current_voters) == [1, 2, 3]
    assert all(each.replica_directory_id != uuid_from_string(directory_id) for each in after.observers)


def test_lost_voter_is_replaced_by_one_command(nodes: dict[int, Node]) -> None:
    before = until(nodes[1].quorum)
    lost = next(node for node in nodes.values() if node.node_id != before.leader_id)
    other = next(node for node in nodes.values() if node is not lost)
    assert "is running with directory" in lost.voters("replace", str(lost.node_id)).stderr
    lost.end(signal.SIGKILL)
    shutil.rmtree(lost.data_dir)
    until(lambda: "does not run as an observer" in other.voters("replace", str(lost.node_id)).stderr)
    directory_id = lost.format("--no-initial-controllers")
    lost.start()
    until(lost.is_ready)
    until(lambda: has_caught_up(lost.quorum()))
    result = until(lambda: (done := other.voters("replace", str(lost.node_id))).returncode == 0 and done)
    assert result.stdout == f"Node {lost.node_id} with directory {directory_id} is now a voter.\n"
    after = until(other.quorum)
    assert sorted(each.replica_id for each in after.current_voters) == [1, 2, 3]
    assert after.observers == []
