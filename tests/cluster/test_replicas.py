"""Replicas of three processes: after kills, pauses and lost directories they are equal to the last byte."""

from __future__ import annotations

import os
import resource
import shutil
import signal
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from .nodes import Node, Nodes, eventually
from .test_three_nodes import admin, consume, create, in_sync, partitions, produce

TOPIC = "t"
PARTITIONS = 3


def stored(node: Node, index: int) -> bytes:
    """Return all batches of a partition from the files of a stopped node."""
    folder = node.data_dir / f"{TOPIC}-{index}"
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def assert_equal_copies(nodes: Nodes) -> None:
    """Stop all nodes and compare."""
    for node in nodes.nodes:
        node.stop()
    for index in range(PARTITIONS):
        first, second, third = (stored(node, index) for node in nodes.nodes)
        assert first == second == third, f"partition {index}: {len(first)}, {len(second)} and {len(third)} bytes"
        assert first


def wait_all_in_sync(nodes: Nodes) -> None:
    client = admin(*nodes.nodes)
    eventually(lambda: in_sync(client, TOPIC, 3), "all replicas are in sync", 60.0)


@pytest.fixture
def busy(make_nodes: Callable[..., Nodes]) -> Nodes:
    """A cluster with a topic that has some records."""
    nodes = make_nodes(replica_lag_time_max_ms="3000")
    nodes.start()
    create(admin(*nodes.nodes), TOPIC, PARTITIONS, min_insync_replicas="2")
    wait_all_in_sync(nodes)
    produce(nodes, TOPIC, [f"first-{number}" for number in range(300)])
    return nodes


@pytest.mark.promise("R13")
def test_each_node_is_killed_during_production(busy: Nodes) -> None:
    producer = Producer(
        {
            "bootstrap.servers": busy.bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 2,
            "message.timeout.ms": 60_000,
        }
    )
    acknowledged: list[str] = []
    failures: list[object] = []

    def send(value: str) -> None:
        def delivered(error: object, _: object) -> None:
            (failures if error else acknowledged).append(error or value)  # type: ignore[arg-type]

        producer.produce(TOPIC, value.encode(), on_delivery=delivered)
        producer.poll(0)

    for node in busy.nodes:
        for number in range(200):
            send(f"before-{node.node_id}-{number}")
        node.kill()
        for number in range(200):
            send(f"without-{node.node_id}-{number}")
        assert producer.flush(60) == 0
        node.start()
        wait_all_in_sync(busy)
    assert not failures
    assert len(acknowledged) == 1200
    values = consume(busy, TOPIC, 1500, PARTITIONS)
    assert sorted(values) == sorted([*acknowledged, *(f"first-{number}" for number in range(300))])
    assert_equal_copies(busy)


@pytest.mark.promise("R13")
def test_paused_node_leaves_and_rejoins_the_isr(busy: Nodes) -> None:
    paused = busy[3]
    assert paused.process is not None
    os.kill(paused.process.pid, signal.SIGSTOP)
    try:
        others = admin(busy[1], busy[2])
        eventually(
            lambda: all(3 not in part.isrs and part.leader != 3 for part in partitions(others, TOPIC).values()),
            "the paused node is in no ISR",
        )
        produce(busy, TOPIC, [f"second-{number}" for number in range(300)])
    finally:
        os.kill(paused.process.pid, signal.SIGCONT)
    wait_all_in_sync(busy)
    assert_equal_copies(busy)


def test_node_with_failed_disk_stops_and_others_continue(busy: Nodes) -> None:
    """The disk fails by a limit on the file size: EFBIG, which free space does not cure."""
    victim = busy[1]
    process = victim.process
    assert process is not None
    limit = 1 << 20
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    produce(busy, TOPIC, [f"second-{number}".ljust(1000) for number in range(PARTITIONS * 1200)])
    assert process.wait(60) == 1
    assert "stopping the node: the disk of log.dirs failed: [Errno 27]" in victim.log_text()
    assert "Traceback" not in victim.log_text()
    victim.start()
    wait_all_in_sync(busy)
    assert_equal_copies(busy)


def test_node_without_records_is_restored(busy: Nodes) -> None:
    victim = busy[2]
    victim.kill()
    for folder in victim.data_dir.glob(f"{TOPIC}-*"):
        shutil.rmtree(folder)
    produce(busy, TOPIC, [f"second-{number}" for number in range(100)])
    victim.start()
    wait_all_in_sync(busy)
    assert_equal_copies(busy)
