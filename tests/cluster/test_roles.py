"""Nodes with one role or both, and static voters: real processes, each with a properties file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.app.ports import HOST, free_ports
from ottla.client.wire.connection import Connection
from ottla.common.kafka.ids import uuid_from_string, uuid_to_string
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumPartitionResponse,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from ottla.protocol.messages.raft_endpoints import RaftEndpoint
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.registry import ApiKey
from ottla.storage.files.names import METADATA_TOPIC

from .nodes import SETTINGS, eventually

TIMEOUT_S = 60
CLUSTER_ID = "2v6DyEs_QqqMYFjaPzw5Ow"


class Process:
    """One node, with the settings that it is given."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.node_id = int(settings["node.id"])
        self.data_dir = folder / f"data-{self.node_id}"
        self.config = folder / f"server-{self.node_id}.properties"
        self.ready_file = folder / f"ready-{self.node_id}"
        self.log = folder / f"log-{self.node_id}"
        lines = {**SETTINGS, "log.dirs": str(self.data_dir), **settings}
        self.config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self.process: subprocess.Popen[bytes] | None = None

    def ottla(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ottla", *arguments, "--config", str(self.config)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)

    def format(self, *arguments: str) -> None:
        done = self.ottla("format", "--cluster-id", CLUSTER_ID, *arguments)
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        self.ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "ottla", "start", "--config", str(self.config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--ready-file", str(self.ready_file)], stdout=log, stderr=log, start_new_session=True
            )

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        return self.ready_file.exists()

    def end(self, number: int) -> int:
        process, self.process = self.process, None
        assert process is not None
        os.kill(process.pid, number)
        return process.wait(TIMEOUT_S)


MakeNode = Callable[[Mapping[str, str]], Process]


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    made: list[Process] = []

    def make(settings: Mapping[str, str]) -> Process:
        made.append(Process(tmp_path, settings))
        return made[-1]

    yield make
    for node in made:
        if node.process is not None:
            node.end(signal.SIGKILL)


def start_all(*nodes: Process) -> None:
    for node in nodes:
        node.start()
    for node in nodes:
        eventually(node.is_ready, f"node {node.node_id} is ready", TIMEOUT_S)


def both(node_id: int, port: int, controller_port: int, **quorum: str) -> dict[str, str]:
    """The settings of a node that is broker and controller."""
    return {
        "node.id": str(node_id),
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        **{name.replace("_", "."): value for name, value in quorum.items()},
    }


def broker(node_id: int, port: int, **quorum: str) -> dict[str, str]:
    return {
        "node.id": str(node_id),
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        **{name.replace("_", "."): value for name, value in quorum.items()},
    }


def ask(port: int, key: ApiKey, message: object) -> Any:
    connection = Connection(HOST, port, client_id="test", timeout_s=TIMEOUT_S, software_version="1")
    try:
        return connection.request(key, message)
    finally:
        connection.close()


def quorum(port: int) -> DescribeQuorumPartitionResponse:
    """Retried: during an election the broker has no controller to ask."""
    topic = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition()])

    def partitions() -> list[DescribeQuorumPartitionResponse]:
        response = ask(port, ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest(topics=[topic]))
        return [partition for each in response.topics for partition in each.partitions]

    return eventually(partitions, "a response of the active controller")[0]


def all_fetch(found: DescribeQuorumPartitionResponse) -> bool:
    return all(each.log_end_offset >= found.high_watermark for each in found.current_voters)


def directory_of(node: Process) -> bytes:
    lines = (node.data_dir / "meta.properties").read_text().splitlines()
    return uuid_from_string(dict(line.split("=", 1) for line in lines if "=" in line)["directory.id"])


def run_tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


def replicated(ports: list[int], replicas: int) -> bool:
    """Return whether a topic with that many replicas can be created."""
    client = AdminClient({"bootstrap.servers": ",".join(f"{HOST}:{port}" for port in ports)})
    client.create_topics([NewTopic("t", 3, replicas)])["t"].result(TIMEOUT_S)
    return eventually(
        lambda: (
            (found := client.list_topics("t", timeout=TIMEOUT_S).topics["t"]).error is None
            and bool(found.partitions)
            and all(len(part.isrs) == replicas for part in found.partitions.values())
        ),
        f"{replicas} replicas in sync",
        TIMEOUT_S,
    )


class TestConfiguredVoters:
    """`controller.quorum.voters`, as most files of Apache Kafka's users have it."""

    def test_static_voters_survive_leader_loss_and_upgrade(self, make_node: MakeNode) -> None:
        ports = free_ports(6)
        voters = ",".join(f"{number + 1}@{HOST}:{ports[3 + number]}" for number in range(3))
        nodes = [
            make_node(both(number + 1, ports[number], ports[3 + number], controller_quorum_voters=voters))
            for number in range(3)
        ]
        for node in nodes:
            node.format()
        start_all(*nodes)
        assert replicated(ports[:3], 3)
        eventually(lambda: quorum(ports[0]).current_voters, "a leader")
        before = quorum(ports[0])
        assert sorted(each.replica_id for each in before.current_voters) == [1, 2, 3]
        leader = nodes[before.leader_id - 1]
        other = ports[before.leader_id % 3]
        leader.end(signal.SIGKILL)
        eventually(
            lambda: (found := quorum(other)).leader_epoch > before.leader_epoch and found.error_code == 0,
            "another leader",
        )
        # Voters are written to the log once all of them have reported their directories (kraft.version 1).
        raising = ("cluster", "features", "upgrade", "--feature", "kraft.version=1", "--bootstrap-server")

        def only_the_dead_one_is_missing() -> bool:  # the live one reports its directory shortly after the election
            refused = run_tool(*raising, f"{HOST}:{other}")
            assert refused.returncode == 1
            return f"on nodes {leader.node_id}: their directory ids" in refused.stderr + refused.stdout

        eventually(only_the_dead_one_is_missing, "a refusal for the dead voter")
        start_all(leader)
        eventually(lambda: run_tool(*raising, f"{HOST}:{other}").returncode == 0, "voters in the log")
        second = quorum(other)
        nodes[second.leader_id - 1].end(signal.SIGKILL)
        port = ports[second.leader_id % 3]
        eventually(lambda: quorum(port).leader_epoch > second.leader_epoch, "a leader by the log")
        start_all(nodes[second.leader_id - 1])
        eventually(lambda: quorum(port).error_code == 0 and all_fetch(quorum(port)), "all fetch")
        moved = next(each for each in quorum(port).current_voters if each.replica_id != quorum(port).leader_id)
        assert bytes(moved.replica_directory_id) == directory_of(nodes[moved.replica_id - 1])
        removal = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=moved.replica_id, voter_directory_id=moved.replica_directory_id
        )
        assert ask(port, ApiKey.REMOVE_RAFT_VOTER, removal).error_code == 0
        assert moved.replica_id not in {each.replica_id for each in quorum(port).current_voters}
        addition = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=10_000,
            voter_id=moved.replica_id,
            voter_directory_id=moved.replica_directory_id,
            listeners=[RaftEndpoint(name="CONTROLLER", host=HOST, port=ports[2 + moved.replica_id])],
        )
        eventually(lambda: ask(port, ApiKey.ADD_RAFT_VOTER, addition).error_code == 0, "voted in again")
        assert sorted(each.replica_id for each in quorum(port).current_voters) == [1, 2, 3]

    def test_format_rejects_two_sources_of_voters(self, make_node: MakeNode) -> None:
        ports = free_ports(2)
        named = make_node(both(1, *ports, controller_quorum_voters=f"1@{HOST}:{ports[1]},2@{HOST}:1"))
        refused = named.ottla("format", "--cluster-id", CLUSTER_ID, "--standalone")
        assert refused.returncode == 2
        assert "controller.quorum.voters" in refused.stderr
        unnamed = make_node(both(3, *ports, controller_quorum_bootstrap_servers=f"{HOST}:1"))
        refused = unnamed.ottla("format", "--cluster-id", CLUSTER_ID)
        assert refused.returncode == 2
        assert "--standalone" in refused.stderr

    def test_node_with_other_voters_is_not_auto_formatted(self, make_node: MakeNode) -> None:
        ports = free_ports(2)
        node = make_node(both(1, *ports, controller_quorum_voters=f"1@{HOST}:{ports[1]},2@{HOST}:1"))
        done = node.ottla("start")
        assert done.returncode == 2
        assert "ottla format" in done.stderr


def test_start_without_an_answer_of_controllers_exits_with_1(make_node: MakeNode) -> None:
    """systemd starts it again (`RestartPreventExitStatus=2`), and later a controller may answer."""
    ports = free_ports(2)
    node = make_node(
        broker(
            2,
            ports[0],
            controller_quorum_bootstrap_servers=f"{HOST}:{ports[1]}",
            initial_broker_registration_timeout_ms="500",
        )
    )
    node.format()
    done = node.ottla("start")
    assert done.returncode == 1, done.stderr
    assert "could not join the cluster: no controller answers" in done.stderr


class TestOneController:
    """One controller, and brokers that join it."""

    @pytest.mark.parametrize("setting", ["controller_quorum_voters", "controller_quorum_bootstrap_servers"])
    def test_single_controller_formats_itself_and_accepts_brokers(self, make_node: MakeNode, setting: str) -> None:
        ports = free_ports(3)
        address = f"{HOST}:{ports[2]}"
        named = {setting: f"1@{address}" if setting.endswith("voters") else address}
        first = make_node(both(1, ports[0], ports[2], **named))
        start_all(first)
        meta = dict(
            line.split("=") for line in (first.data_dir / "meta.properties").read_text().splitlines() if "=" in line
        )
        uuid_from_string(meta["cluster.id"])
        second = make_node(broker(2, ports[1], **named))
        assert second.ottla("format", "--cluster-id", meta["cluster.id"]).returncode == 0
        start_all(second)
        assert replicated(ports[:2], 2)
        assert first.end(signal.SIGTERM) == 0
        start_all(first)
        eventually(lambda: [each.replica_id for each in quorum(ports[0]).observers] == [2], "the broker is back")

    def test_controllers_that_join_by_themselves_vote_with_it(self, make_node: MakeNode) -> None:
        ports = free_ports(6)
        named = {
            "controller_quorum_bootstrap_servers": ",".join(f"{HOST}:{port}" for port in ports[3:]),
            "controller_quorum_auto_join_enable": "true",
        }
        nodes = [make_node(both(number + 1, ports[number], ports[3 + number], **named)) for number in range(3)]
        nodes[0].format("--standalone")
        for node in nodes[1:]:
            node.format("--no-initial-controllers")
        start_all(*nodes)

        def voters() -> list[int]:
            return sorted(each.replica_id for each in quorum(ports[0]).current_voters)

        eventually(lambda: voters() == [1, 2, 3], "all three vote", TIMEOUT_S)
        before = quorum(ports[0])
        leader, lost = before.leader_id, next(node for node in nodes if node.node_id != before.leader_id)
        lost.end(signal.SIGKILL)
        shutil.rmtree(lost.data_dir)
        lost.format("--no-initial-controllers")
        start_all(lost)

        def directories() -> dict[int, bytes]:
            return {each.replica_id: each.replica_directory_id for each in quorum(ports[leader - 1]).current_voters}

        old = {each.replica_id: each.replica_directory_id for each in before.current_voters}
        eventually(
            lambda: (found := directories()).keys() == old.keys() and found[lost.node_id] != old[lost.node_id],
            "the lost one votes with its new directory",
            TIMEOUT_S,
        )

    def test_a_local_cluster_of_two(self, tmp_path: Path) -> None:
        """The first of them is the only voter."""
        ready = tmp_path / "ready"
        log = tmp_path / "log"
        command = [sys.executable, "-m", "ottla", "start", "--brokers", "2", "--port", "0"]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, "--data-dir", str(tmp_path / "data"), "--ready-file", str(ready)],
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            eventually(ready.exists, "both are ready", TIMEOUT_S)
        finally:
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(TIMEOUT_S) == 0, log.read_text()


def controller(node_id: int, port: int, **quorum: str) -> dict[str, str]:
    return {
        "node.id": str(node_id),
        "process.roles": "controller",
        "listeners": f"CONTROLLER://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        **{name.replace("_", "."): value for name, value in quorum.items()},
    }


def controllers_of(port: int) -> list[tuple[int, str, int]]:
    """Return the controllers as a controller reports them to administrators (KIP-919)."""
    response: DescribeClusterResponse = ask(port, ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(endpoint_type=2))
    assert response.error_code == 0
    assert response.endpoint_type == 2
    return [(each.broker_id, each.host, each.port) for each in response.brokers]


def knows_controllers(port: int, expected: list[tuple[int, str, int]]) -> bool:
    """Whether the controller at `port` knows these, and no others."""
    return controllers_of(port) == expected


class TestSeparateRoles:
    """Three dedicated controllers, and two brokers."""

    @pytest.mark.parametrize("voters", ["configured", "recorded"])
    def test_they_form_a_cluster_that_outlives_its_active_controller(self, make_node: MakeNode, voters: str) -> None:
        ports = free_ports(5)
        controller_ports = ports[2:]
        ids = [11, 12, 13]
        directories = [uuid_to_string(bytes([10 + number]) * 16) for number in ids]
        addresses = [f"{HOST}:{port}" for port in controller_ports]
        if voters == "configured":
            named = {
                "controller_quorum_voters": ",".join(
                    f"{number}@{address}" for number, address in zip(ids, addresses, strict=True)
                )
            }
            first: tuple[str, ...] = ()
        else:
            named = {"controller_quorum_bootstrap_servers": ",".join(addresses)}
            each = (f"{n}@{a}:{d}" for n, a, d in zip(ids, addresses, directories, strict=True))
            first = ("--initial-controllers", ",".join(each))
        controllers = [
            make_node(controller(number, port, **named)) for number, port in zip(ids, controller_ports, strict=True)
        ]
        brokers = [make_node(broker(number + 1, ports[number], **named)) for number in range(2)]
        for node in controllers:
            node.format(*first)
        for node in brokers:
            node.format()
        start_all(*controllers, *brokers)
        assert replicated(ports[:2], 2)
        expected = [(number, HOST, port) for number, port in zip(ids, controller_ports, strict=True)]
        for port in controller_ports:
            eventually(partial(knows_controllers, port, expected), "all controllers are known")
        before = quorum(ports[0])
        assert sorted(each.replica_id for each in before.current_voters) == ids
        eventually(lambda: sorted(each.replica_id for each in quorum(ports[0]).observers) == [1, 2], "brokers observe")
        leader = controllers[ids.index(before.leader_id)]
        leader.end(signal.SIGKILL)
        eventually(lambda: quorum(ports[1]).leader_id in {*ids} - {before.leader_id}, "another leads")
        client = AdminClient({"bootstrap.servers": f"{HOST}:{ports[0]}"})
        client.create_topics([NewTopic("after", 1, 2)])["after"].result(TIMEOUT_S)
        start_all(leader)
        for node in [*brokers, *controllers]:
            assert node.end(signal.SIGTERM) == 0, node.log.read_text()[-2000:]
        for node in controllers:
            assert not [each for each in node.data_dir.iterdir() if each.name.startswith("t-")]
