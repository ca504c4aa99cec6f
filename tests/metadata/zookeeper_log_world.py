"""A cluster for the contract of `MetadataLog` on a simulated ZooKeeper."""

from __future__ import annotations

from tests.zookeeper.nodes import World as Tree

from .log_world import BROKERS, NODES, PROPERTIES, LogWorld, Member


class ZooKeeperLogWorld(LogWorld):
    """Nodes with sessions; brokers are ephemeral znodes."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        self.tree = Tree(seed, PROPERTIES)
        self.loop, self.rng = self.tree.loop, self.tree.rng.fork("contract")
        self.start(*NODES)
        self.join(*BROKERS)

    def begin(self, node_id: int) -> Member:
        self.tree.start(node_id)
        node = self.tree.nodes[node_id]
        return Member(self, node_id, node.process, node.publisher, node.log, node.controller, self.loop.failures)

    def kill(self, node_id: int) -> None:
        self.members[node_id].process.kill()

    def isolate(self, node_id: int, seconds: float) -> None:
        self.tree.nodes[node_id].session.cut(seconds)
        self.tree.wire.cut.add(node_id)
        self.loop.call_later(seconds, self.tree.wire.cut.discard, node_id)

    def join(self, *broker_ids: int) -> None:
        self.tree.join(*broker_ids)
        self.brokers.update(broker_ids)

    def leave(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.tree.leave(broker_id)
        self.brokers.difference_update(broker_ids)

    def forces_snapshot(self) -> bool:
        return True  # nothing is stored by nodes
