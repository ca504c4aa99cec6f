"""`leader-epoch-checkpoint` of real processes: complete after a clean stop, completed if entries are missing."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from simulation.epoch_files import check_epoch_files

from ottla.app.disk import RealDisk
from ottla.app.ports import HOST
from ottla.client.admin.reassignments import PREFERRED, alter_reassignments, elect_leaders, list_reassignments
from ottla.client.wire.connection import Connection
from ottla.storage.files.checkpoints import format_epochs, read_epochs
from ottla.storage.files.names import LEADER_EPOCH_CHECKPOINT

from .nodes import Node, Nodes, eventually
from .test_three_nodes import TIMEOUT_S, admin, consume, in_sync, partitions, produce

TOPIC = "t"
PARTITIONS = 3
LEADER, FOLLOWER, REMOVED = 1, 2, 3
CUTS = "ottla_replica_committed_truncations_total"
REQUEST_MS = 10_000


class Cluster:
    """Three nodes, all partitions led by the first, and the acknowledged records."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.client: AdminClient = admin(*nodes.nodes)
        self.acknowledged: list[str] = []
        topic = NewTopic(
            TOPIC,
            PARTITIONS,
            replica_assignment=[[LEADER, FOLLOWER, REMOVED]] * PARTITIONS,
            config={"min.insync.replicas": "2"},
        )
        self.client.create_topics([topic])[TOPIC].result(TIMEOUT_S)
        self.wait_in_sync(3)

    def wait_in_sync(self, count: int) -> None:
        eventually(lambda: in_sync(self.client, TOPIC, count), f"{count} replicas are in sync")

    def produce(self) -> None:
        """Produce several batches to each partition, each larger than a follower's fetch."""
        for _ in range(4):
            values = [f"{len(self.acknowledged) + number:0200d}" for number in range(60)]
            produce(self.nodes, TOPIC, values)
            self.acknowledged += values

    def reassign(self, *replicas: int) -> None:
        connection = Connection(HOST, self.nodes[LEADER].port, client_id="t", timeout_s=TIMEOUT_S, software_version="1")
        alter_reassignments(connection, {(TOPIC, index): replicas for index in range(PARTITIONS)}, REQUEST_MS)
        eventually(lambda: not list_reassignments(connection, REQUEST_MS), "the reassignment is complete")
        connection.close()
        self.wait_in_sync(len(replicas))

    def restart_leader(self) -> None:
        leader = self.nodes[LEADER]
        assert leader.stop() == 0
        leader.start()
        self.elect_leader(3)

    def elect_leader(self, in_sync_count: int) -> None:
        self.wait_in_sync(in_sync_count)
        connection = Connection(HOST, self.nodes[LEADER].port, client_id="t", timeout_s=TIMEOUT_S, software_version="1")
        elect_leaders(connection, None, PREFERRED, REQUEST_MS)
        connection.close()
        eventually(
            lambda: {each.leader for each in partitions(self.client, TOPIC).values()} == {LEADER}, "the first one leads"
        )

    def stop(self) -> None:
        """Stop all nodes cleanly; the files of each are complete."""
        for node in self.nodes.nodes:
            assert node.stop() == 0
        compared = {
            node.node_id: check_epoch_files(RealDisk(), str(node.data_dir), node.address) for node in self.nodes.nodes
        }
        assert all(compared[node_id] > 3 * PARTITIONS for node_id in (LEADER, FOLLOWER)), compared


def epoch_file(node: Node, index: int) -> Path:
    return node.data_dir / f"{TOPIC}-{index}" / LEADER_EPOCH_CHECKPOINT


def committed_truncations(node: Node) -> float:
    address = json.loads(node.ready_file.read_bytes())["metrics"]
    text = urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S).read().decode()
    return float(next(line for line in text.splitlines() if line.startswith(CUTS)).split()[-1])


def test_epoch_files_are_complete_and_completed(make_nodes) -> None:
    """Missing entries made followers truncate committed records in a loop, and the ISR never had two members again."""
    nodes = make_nodes(
        broker_session_timeout_ms="60000",
        replica_fetch_max_bytes="1024",
        log_scrub_io_max_bytes_per_second="0",  # it adds missing entries, too
    )
    nodes.start()
    cluster = Cluster(nodes)
    cluster.produce()
    cluster.restart_leader()
    cluster.produce()
    cluster.reassign(LEADER, FOLLOWER)
    cluster.stop()
    nodes.start()
    cluster.wait_in_sync(2)
    cluster.produce()
    cluster.stop()

    # A directory of an older version: an entry in the middle, the last, or both are missing.
    for index, kept in enumerate(((0, 2), (0, 1), (0,))):
        file = epoch_file(nodes[LEADER], index)
        entries = read_epochs(RealDisk(), str(file))[:3]  # later entries may have no record
        assert len(entries) == 3
        file.write_bytes(format_epochs([entries[number] for number in kept]))
    nodes.start("--metrics-port", "0")
    cluster.elect_leader(2)
    cluster.produce()
    cluster.reassign(LEADER, FOLLOWER, REMOVED)  # an empty replica fetches each epoch in turn
    assert sorted(consume(nodes, TOPIC, len(cluster.acknowledged))) == sorted(cluster.acknowledged)
    assert [committed_truncations(node) for node in nodes.nodes] == [0.0, 0.0, 0.0]
    cluster.stop()
