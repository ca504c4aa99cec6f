"""One of two data directories of a real node is on a file system that starts to return EIO (KIP-858)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..faults.small_disk import MEGABYTE, FailingDisk, SmallDisk, needs_root
from .nodes import Node, Nodes, Place, eventually, of_the_quorum, on_loopback
from .test_three_nodes import admin, consume, create, in_sync, partitions, produce

pytestmark = [pytest.mark.root, needs_root]

TOPIC = "t"
PARTITIONS = 6
VICTIM = 2


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FailingDisk]:
    with FailingDisk(tmp_path, 64 * MEGABYTE) as failing:
        yield failing


def cluster(folder: Path, first: Path, second: Path, disk: SmallDisk) -> Nodes:
    """Three nodes, of which one has two directories; a topic that is in sync and has records."""
    places = on_loopback(3)
    port, controller_port = places[VICTIM - 1].port, places[VICTIM - 1].controller_port
    places[VICTIM - 1] = Place(port, controller_port, python=disk.python, data_dir=first, more_dirs=(second,))
    nodes = Nodes(folder, settings={"replica.lag.time.max.ms": "3000"}, places=places)
    try:
        nodes.start()
        create(admin(*nodes.nodes), TOPIC, PARTITIONS, min_insync_replicas="2")
        eventually(lambda: in_sync(admin(*nodes.nodes), TOPIC, 3), "all replicas are in sync", 60.0)
        produce(nodes, TOPIC, values("first"))
    except BaseException:
        nodes.close()
        raise
    return nodes


@pytest.fixture
def spare(tmp_path: Path, disk: FailingDisk) -> Iterator[Nodes]:
    """A cluster with its second directory on the disk."""
    nodes = cluster(tmp_path, tmp_path / "first", disk.path / "second", disk)
    yield nodes
    nodes.close()


@pytest.fixture
def metadata(tmp_path: Path, disk: FailingDisk) -> Iterator[Nodes]:
    """A cluster with its first directory on the disk."""
    nodes = cluster(tmp_path, disk.path / "first", tmp_path / "second", disk)
    yield nodes
    nodes.close()


def values(name: str) -> list[str]:
    return [f"{name}-{number}" for number in range(300)]


def on(directory: Path) -> set[int]:
    """Return the partitions of the topic with files in that directory."""
    return {int(path.name.rpartition("-")[2]) for path in directory.glob(f"{TOPIC}-?")}


def others(nodes: Nodes) -> list[Node]:
    return [node for node in nodes.nodes if node.node_id != VICTIM]


@pytest.mark.promise("D9")
def test_partitions_of_the_failed_directory_move(spare: Nodes, disk: FailingDisk, tmp_path: Path) -> None:
    victim = spare[VICTIM]
    process = victim.process
    lost, kept = on(disk.outside / "second"), on(tmp_path / "first")
    assert len(lost) == len(kept) == PARTITIONS / 2
    disk.fail()
    produce(spare, TOPIC, values("second"))
    client = admin(*others(spare))

    def given_up() -> bool:
        found = partitions(client, TOPIC)
        return bool(found) and all(VICTIM not in found[index].isrs and found[index].leader in (1, 3) for index in lost)

    eventually(given_up, "it leads no lost partition, and is in no ISR of one")
    produce(spare, TOPIC, values("third"))

    def in_the_rest() -> bool:
        found = partitions(client, TOPIC)
        return bool(found) and all(VICTIM in found[index].isrs for index in kept)

    eventually(in_the_rest, "it is in every ISR of its remaining partitions")
    assert process.poll() is None
    text = victim.log_text()
    assert f"failed in {disk.path / 'second'}: Input/output error" in text
    assert "Traceback" not in text
    # The disk is repaired, and the node fetches the missing records.
    assert victim.stop() == 0
    disk.remount()
    victim.start()
    eventually(lambda: in_sync(admin(*spare.nodes), TOPIC, 3), "all replicas are in sync", 60.0)
    assert on(disk.outside / "second") == lost
    expected = [*values("first"), *values("second"), *values("third")]
    assert sorted(consume(spare, TOPIC, len(expected), PARTITIONS)) == sorted(expected)


@pytest.mark.promise("D9")
@of_the_quorum(reason="no directory has a metadata log")
def test_failed_metadata_directory_stops_the_node(metadata: Nodes, disk: FailingDisk) -> None:
    victim = metadata[VICTIM]
    process = victim.process
    before = len(victim.log_text())
    disk.fail()
    produce(metadata, TOPIC, values("second"))
    create(admin(*others(metadata)), "a-change", 1, 2)  # a metadata record to store
    assert process.wait(60) == 1
    (sentence,) = [line for line in victim.log_text()[before:].splitlines() if " CRITICAL " in line]
    assert "stopping the node: the disk of log.dirs failed: " in sentence
    assert "Traceback" not in victim.log_text()
    produce(metadata, TOPIC, values("third"))
    # It does not start on a failing disk either.
    command = [disk.python, "-m", "ottla", "start", "--config", str(victim.config)]
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 2, again.stderr
    assert again.stderr.splitlines()[-1].startswith("ottla: ")
    assert str(disk.path / "first") in again.stderr
    assert "Traceback" not in again.stderr
    disk.remount()
    victim.start()
    eventually(lambda: in_sync(admin(*metadata.nodes), TOPIC, 3), "all replicas are in sync", 60.0)
    expected = [*values("first"), *values("second"), *values("third")]
    assert sorted(consume(metadata, TOPIC, len(expected), PARTITIONS)) == sorted(expected)
