"""One of three replicas has a damaged file, again and again, while clients run: no acknowledged record is lost, no
wrong one is accepted, and the replicas become equal again.

OTTLA_DAMAGES=300 OTTLA_DAMAGES_SEED=1 sets the number of damages, as `make damage` does. Each case changes one bit of
one file of one node, while the node runs or between its stop and its start.

Left out: `.txnindex`. Its entries have no checksum, and a wrong but plausible entry is accepted
(docs/operations/runbooks/damaged-data.md).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.faults.ledger import Ledger

from .nodes import Node, Nodes, eventually
from .test_three_nodes import admin, create, in_sync

DAMAGES = int(os.environ.get("OTTLA_DAMAGES", "2"))
SEED = int(os.environ.get("OTTLA_DAMAGES_SEED", "1"))
TOPIC, PARTITIONS = "t", 2
ABORTS = "aborts"
"""A topic with transactions, of which every other one is aborted."""
CASES = 20
"""Cases per cluster: the more segments exist, the longer a pass of the scrubber takes."""
SEGMENT_BYTES = 1 << 20
VALUE_BYTES = 400
RECORDS = 8_000
"""Enough to fill a segment of each partition, so that a damaged active segment becomes complete, and is read."""
PAIRS, ABORTS_SEGMENT_BYTES = 6, 4096
"""Number of transaction pairs, likewise: a pair takes more than a kilobyte."""
WHOLE_S = 90.0
RUNNING, STOPPED, KILLED = "running", "stopped", "killed"
WHEN = (RUNNING, STOPPED, KILLED)
KINDS: dict[str, str] = {
    "data": f"{TOPIC}-*/*.log",
    "data with transactions": f"{ABORTS}-0/*.log",
    "index": f"{TOPIC}-*/*.index",
    "time index": f"{TOPIC}-*/*.timeindex",
    "snapshot": f"{TOPIC}-*/*.snapshot",
    "leader epochs": f"{TOPIC}-*/leader-epoch-checkpoint",
    "partition metadata": f"{TOPIC}-*/partition.metadata",
    "checkpoint": "*checkpoint",
    "metadata log": "__cluster_metadata-0/*.log",
    "quorum state": "__cluster_metadata-0/quorum-state",
}


class Bit:
    """One bit of a file, flipped."""

    def __init__(self, node: Node, kind: str, rng: random.Random) -> None:
        paths = [path for path in sorted(node.data_dir.glob(KINDS[kind])) if path.stat().st_size]
        self.path: Path | None = rng.choice(paths) if paths else None
        self.original = b""
        if self.path is not None:
            self.original = self.path.read_bytes()
            self.position = rng.randrange(len(self.original))
            self._write(self.original[self.position] ^ 1 << rng.randrange(8))

    def _write(self, value: int) -> None:
        assert self.path is not None
        with self.path.open("r+b") as file:
            file.seek(self.position)
            file.write(bytes([value]))

    def put_right(self) -> None:
        """Restore a file that the node reports at start, as an operator does from a backup."""
        assert self.path is not None
        self.path.write_bytes(self.original)

    def __repr__(self) -> str:
        return f"byte {self.position} of {self.path}" if self.path else "no such file"


class Transactions:
    """A producer that repeatedly commits one record and aborts another."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": "damage", "log_level": 0})
        self._producer.init_transactions(60)
        self._count = 0

    def run_two(self) -> None:
        producer = self._producer
        for end, value in ((producer.commit_transaction, b"%d" % self._count), (producer.abort_transaction, b"-")):
            producer.begin_transaction()
            producer.produce(ABORTS, value + b"." * VALUE_BYTES, partition=0)
            producer.flush(60)
            end(60)
        self._count += 1

    def verify(self) -> None:
        """A read_committed consumer sees exactly the committed records, in order."""
        settings = {"bootstrap.servers": self._servers, "group.id": "reader", "isolation.level": "read_committed"}
        consumer = Consumer({**settings, "check.crcs": True})
        try:
            consumer.assign([TopicPartition(ABORTS, 0, OFFSET_BEGINNING)])
            for number in range(self._count):
                message = consumer.poll(30)
                assert message is not None
                assert message.error() is None
                assert (message.value() or b"").rstrip(b".") == b"%d" % number
        finally:
            consumer.close()


class Trial:
    """A cluster under load, damaged case by case."""

    def __init__(self, nodes: Nodes, seed: int) -> None:
        self.nodes = nodes
        self.rng = random.Random(seed)
        self.client: AdminClient = admin(*nodes.nodes)
        self.ledger = Ledger(
            nodes.bootstrap_servers, TOPIC, PARTITIONS, VALUE_BYTES, **{"batch.size": SEGMENT_BYTES // 16}
        )
        self.transactions = Transactions(nodes.bootstrap_servers)
        self.outcomes: Counter[str] = Counter()

    def run_case(self, number: int) -> None:
        rng, kind = self.rng, list(KINDS)[number % len(KINDS)]
        node, when = rng.choice(self.nodes.nodes), rng.choice(WHEN)
        if when == STOPPED:
            node.stop()
        elif when == KILLED:
            node.kill()
        bit = Bit(node, kind, rng)
        self.ledger.acknowledge(RECORDS)
        for _ in range(PAIRS):
            self.transactions.run_two()
        if when == RUNNING:
            # A start begins a pass over all complete segments.
            node.stop()
        self._start(node, bit)
        self.outcomes[f"{kind}, {when}"] += 1
        eventually(self._is_whole, f"after {bit} was changed, {when}, replicas are whole and equal", WHOLE_S)

    def _start(self, node: Node, bit: Bit) -> None:
        node.start(wait=False)
        process = node.process
        assert process is not None
        eventually(lambda: node.ready or process.poll() is not None, f"node {node.node_id} is up or has ended", 60.0)
        if process.poll() is not None:
            assert bit.path is not None
            assert bit.path.name in node.log_text()[-4000:], f"{bit}:\n{node.log_text()[-4000:]}"
            bit.put_right()
            self.outcomes["a start was refused by the file's name"] += 1
            node.start()

    def _is_whole(self) -> bool:
        self.ledger.acknowledge(20)
        return all(in_sync(self.client, topic, 3) for topic in (TOPIC, ABORTS)) and all(
            self._equal(name) for name in (f"{ABORTS}-0", *(f"{TOPIC}-{index}" for index in range(PARTITIONS)))
        )

    def _equal(self, name: str) -> bool:
        """Return whether all replicas have the same bytes in their common range."""
        folders = [node.data_dir / name for node in self.nodes.nodes]
        contents = [b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))) for folder in folders]
        shortest = min(map(len, contents))
        return len({content[:shortest] for content in contents}) == 1


@pytest.mark.promise("R6")
@pytest.mark.timeout(240 + 60 * CASES)
@pytest.mark.parametrize("first", range(0, DAMAGES, CASES))
def test_damage_to_any_file_of_one_replica_is_repaired(make_nodes: Callable[..., Nodes], first: int) -> None:
    nodes = make_nodes(
        replica_lag_time_max_ms="3000",
        log_scrub_io_max_bytes_per_second=str(1 << 30),
        transaction_state_log_num_partitions="2",
    )
    nodes.start()
    client = admin(*nodes.nodes)
    create(client, TOPIC, PARTITIONS, min_insync_replicas="2", internal_segment_bytes=str(SEGMENT_BYTES))
    create(client, ABORTS, 1, min_insync_replicas="2", internal_segment_bytes=str(ABORTS_SEGMENT_BYTES))
    eventually(lambda: in_sync(client, TOPIC, 3), "all replicas are in sync", 60.0)
    trial = Trial(nodes, SEED * 1000 + first)
    trial.ledger.acknowledge(RECORDS)
    cases = range(first, min(first + CASES, DAMAGES))
    for number in cases:
        trial.run_case(number)
    trial.ledger.finish()
    trial.ledger.verify(nodes.bootstrap_servers)
    trial.transactions.verify()
    print(f"{len(cases)} bits flipped, {len(trial.ledger.acknowledged)} records acknowledged: {dict(trial.outcomes)}")
