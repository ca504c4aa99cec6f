"""Peers of several processes: nodes of one kind, each with its own directory, that form one cluster.

Every node is an ordinary process with a config file of the same lines for every peer, so that Ottla and Apache Kafka
differ only in the program; a killed node is not restarted. CPU and memory are the sums of the running nodes, without
killed processes.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.peers import Member, Server
from harness.processes import Usage
from ottla.app.ports import free_ports
from ottla.client.admin.brokers import describe_brokers
from ottla.client.wire.connection import BrokerUnreachable, Connection
from ottla.common.errors import KafkaError

CLIENT_ID = "bench"
PAUSE_S = 0.01


def connect(port: int, timeout_s: float = 30.0) -> Connection:
    """Connect to one node only. Raises BrokerUnreachable and KafkaError."""
    return Connection("127.0.0.1", port, client_id=CLIENT_ID, timeout_s=timeout_s, software_version="0")


@dataclass
class Cluster(Server):
    """A cluster of nodes, created by `make_node` with the name, the settings, `port`, `home`, `cpus` and `member` of
    each.

    `data`, `pid` and `process` are those of the nodes; `port` is the first one's.
    """

    make_node: Callable[..., Server] = field(kw_only=True)
    size: int = 3
    nodes: list[Server] = field(init=False, default_factory=list)
    """Node id n is `nodes[n - 1]`."""

    def __post_init__(self) -> None:
        ports = free_ports(2 * self.size)
        controllers = dict(enumerate(ports[self.size :], start=1))
        for node_id, port in enumerate(ports[: self.size], start=1):
            home = self.home / f"node-{node_id}"
            home.mkdir()
            self.nodes.append(
                self.make_node(
                    f"{self.name} {node_id}",
                    settings=self.settings,
                    port=port,
                    home=home,
                    cpus=self.cpus,
                    member=Member(node_id, controllers),
                )
            )
        self.port = ports[0]

    def node(self, node_id: int) -> Server:
        return self.nodes[node_id - 1]

    def survivor(self, node_id: int) -> Server:
        """Returns a node with a different id."""
        return next(node for number, node in enumerate(self.nodes, start=1) if number != node_id)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.nodes)

    def prepare(self) -> None:
        for node in self.nodes:
            node.prepare()

    def launch(self) -> None:
        for node in self.nodes:
            node.launch()

    def start(self) -> float:
        """Start all nodes at once; returns the seconds until every node reports all of them as available."""
        started = time.perf_counter()
        self.launch()
        self.wait_until(self.answers, PAUSE_S)
        return time.perf_counter() - started

    def answers(self) -> bool:
        """Returns whether the controller accepted every node, and every node knows all others."""
        return all(node.answers() for node in self.nodes) and all(self.complete(node.port) for node in self.nodes)

    def complete(self, port: int) -> bool:
        """Returns whether the node on this port knows all nodes, none of them fenced."""
        try:
            connection = connect(port)
            try:
                known = describe_brokers(connection)
            finally:
                connection.close()
        except (BrokerUnreachable, KafkaError):
            return False
        return sum(not broker.fenced for broker in known) == self.size

    def check_alive(self) -> None:
        for node in self.nodes:
            node.check_alive()

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Kill all nodes at once; a clean stop of all cannot hand over leadership, and is not measured."""
        for node in self.nodes:
            node.end(number)
        for node in self.nodes:
            node.stop(number)

    def usage(self) -> Usage:
        used = [node.usage() for node in self.nodes if node.process is not None]
        return Usage(time.perf_counter(), sum(each.user_s for each in used), sum(each.system_s for each in used))

    def memory_mb(self) -> float:
        return sum(node.memory_mb() for node in self.nodes if node.process is not None)

    def peak_memory_mb(self) -> float:
        return sum(node.peak_memory_mb() for node in self.nodes if node.process is not None)
