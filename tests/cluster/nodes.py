"""Three nodes on loopback: formatted, started with `ottla start --config`, killed and stopped individually by process
id.

Each is an ordinary process with a config and a directory of its own; its log is a file in that directory's parent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from ottla.app.clock import SystemRng
from ottla.app.ports import HOST, free_ports
from ottla.app.scram_users import scram_record
from ottla.common.kafka.ids import new_uuid, uuid_to_string
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE
from ottla.protocol.znodes.configs import encode_config
from ottla.zookeeper.entities import changed_entities, entity_path, entity_values

from .logged_process import LoggedProcess

T = TypeVar("T")

START_TIMEOUT_S = 60.0
SETTINGS = {
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}
"""Short sessions, so that a dead broker is detected sooner than with Kafka's defaults."""


ZOOKEEPER = os.environ.get("OTTLA_CLUSTER_ON_ZOOKEEPER")
"""ZooKeeper servers that coordinate the clusters instead of a quorum (`compat/java/test_zookeeper_suite.py`)."""


of_the_quorum = partial(pytest.mark.skipif, bool(ZOOKEEPER))
"""Skips a test of a feature that clusters on ZooKeeper lack, for the given `reason`."""


def new_tree(servers: str, users: Sequence[str] = ()) -> str:
    """Create a root path for one cluster, as in `zookeeper.connect`; with users as `--add-scram` takes them.

    No broker exists yet, so Apache Kafka's `kafka-configs --zookeeper` creates them.
    """
    path = f"/{uuid_to_string(new_uuid(os.urandom(16)))}"
    if not users:  # the brokers create it
        return f"{servers}{path}"
    from kazoo.client import KazooClient

    delta = MetadataDelta(EMPTY_IMAGE)
    for user in users:
        delta.replay(scram_record(user, SystemRng()))
    image, _ = delta.apply(0, 0)
    client = KazooClient(servers)
    client.start(START_TIMEOUT_S)
    for entity in changed_entities(EMPTY_IMAGE, image):
        client.create(path + entity_path(entity), encode_config(entity_values(image, entity)), makepath=True)
    client.stop()
    client.close()
    return f"{servers}{path}"


def on_loopback(count: int) -> list[Place]:
    """Return places for nodes that share this machine's network."""
    ports = free_ports(2 * count)
    return [Place(port, controller_port) for port, controller_port in zip(ports[::2], ports[1::2], strict=True)]


def eventually(probe: Callable[[], T | None], what: str, timeout_s: float = 60.0) -> T:
    """Return the first true value of `probe`; waits for the condition, not for a fixed time."""
    until = time.monotonic() + timeout_s
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.02)


@dataclass(frozen=True)
class Place:
    """Address of a node, and the Python that runs it: one that enters a namespace first is a separate host."""

    port: int
    controller_port: int
    host: str = HOST
    python: str = sys.executable
    data_dir: Path | None = None
    """The first of `log.dirs`, which contains the metadata log."""
    more_dirs: tuple[Path, ...] = ()
    """The other directories of `log.dirs`."""


class Node(LoggedProcess):
    """One node of the cluster."""

    def __init__(self, folder: Path, node_id: int, place: Place) -> None:
        super().__init__(folder / f"node-{node_id}.log")
        self.node_id = node_id
        self.place = place
        self.port = place.port
        self.directory_id = uuid_to_string(new_uuid(os.urandom(16)))
        self.data_dir = place.data_dir or folder / f"node-{node_id}"
        self.config = folder / f"node-{node_id}.properties"
        self.ready_file = folder / f"node-{node_id}.ready"

    @property
    def address(self) -> str:
        return f"{self.place.host}:{self.port}"

    @property
    def controller_address(self) -> str:
        return f"{self.place.host}:{self.place.controller_port}"

    @property
    def controllers_port(self) -> int:
        """Port for requests of brokers to the controller: on ZooKeeper the inter-broker listener."""
        return self.port if ZOOKEEPER else self.place.controller_port

    @property
    def voter(self) -> str:
        return f"{self.node_id}@{self.controller_address}:{self.directory_id}"

    def start(self, *options: str, wait: bool = True) -> None:
        """Start with `options` of `ottla start` beside those of every node."""
        command = [self.place.python, "-m", "ottla", "start", "--config", str(self.config)]
        self.run([*command, "--ready-file", str(self.ready_file), *options])
        if wait:
            self.wait_ready()

    @property
    def ready(self) -> bool:
        """Whether it serves clients."""
        try:
            return self.process is not None and json.loads(self.ready_file.read_bytes())["pid"] == self.process.pid
        except (OSError, ValueError):
            return False

    def wait_ready(self) -> None:
        """Wait until it serves clients."""
        process = self.process
        assert process is not None

        def ready() -> bool:
            assert process.poll() is None, f"node {self.node_id} ended:\n{self.log_text()[-4000:]}"
            return self.ready

        eventually(ready, f"node {self.node_id} is ready\n{self.log_text()[-4000:]}", START_TIMEOUT_S)


class Nodes:
    """The nodes of one cluster; the first `voters` of the initial ones vote, the others are brokers only."""

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        places: Sequence[Place] = (),
        voters: int | None = None,
        first: Sequence[str] = (),
        zookeeper: str | None = ZOOKEEPER,
    ) -> None:
        """`places` are for nodes that don't listen on loopback. All nodes start, and vote, by default.

        `first` are additional options of the voters' `ottla format`, `zookeeper` the servers that replace a quorum.
        """
        self.folder = folder
        self.cluster_id = uuid_to_string(new_uuid(os.urandom(16)))
        self.nodes = [Node(folder, number, place) for number, place in enumerate(places or on_loopback(count), 1)]
        self._settings = {**SETTINGS, **(settings or {})}
        self._voters = self.nodes[:voters]
        users = [user for option, user in zip(first[::2], first[1::2], strict=True) if option == "--add-scram"]
        self._zookeeper = new_tree(zookeeper, users) if zookeeper else None
        for node in self.nodes:
            self._configure(node)
            if node in self._voters:
                self._format(node, "--initial-controllers", ",".join(each.voter for each in self._voters), *first)
            else:
                self._format(node, "--no-initial-controllers")

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id - 1]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def add(self) -> Node:
        """Add a broker, formatted and running."""
        node = Node(self.folder, len(self.nodes) + 1, on_loopback(1)[0])
        self.nodes.append(node)
        self._configure(node)
        self._format(node, "--no-initial-controllers")
        node.start()
        return node

    def _configure(self, node: Node) -> None:
        lines = {
            **(self._of_quorum(node) if self._zookeeper is None else self._on_zookeeper(node, self._zookeeper)),
            "log.dirs": ",".join(map(str, (node.data_dir, *node.place.more_dirs))),
            **self._settings,
        }
        node.config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    def _of_quorum(self, node: Node) -> dict[str, str]:
        votes = node in self._voters
        controller = f",CONTROLLER://{node.controller_address}" if votes else ""
        return {
            "node.id": str(node.node_id),
            "process.roles": "broker,controller" if votes else "broker",
            "listeners": f"PLAINTEXT://{node.address}{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(each.controller_address for each in self._voters),
        }

    @staticmethod
    def _on_zookeeper(node: Node, connect: str) -> dict[str, str]:
        return {
            "broker.id": str(node.node_id),
            "listeners": f"PLAINTEXT://{node.address}",
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "3000",
        }

    def _format(self, node: Node, *voters: str) -> None:
        """On ZooKeeper nothing is formatted: the tree contains the cluster id."""
        if self._zookeeper is not None:
            return
        command = [node.place.python, "-m", "ottla", "format", "--config", str(node.config)]
        subprocess.run(
            [*command, "--cluster-id", self.cluster_id, *voters], check=True, capture_output=True, timeout=60
        )

    def start(self, *options: str) -> None:
        for node in self.nodes:
            node.start(*options, wait=False)
        for node in self.nodes:
            node.wait_ready()

    def close(self) -> None:
        """Stop all running nodes."""
        for node in self.nodes:
            if node.process is not None:
                node.kill()
