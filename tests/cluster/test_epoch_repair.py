"""A cluster with exhausted leader epochs reports it, and is repaired with its records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ottla.quorum.election_file import decode_fields, encode_fields

from .nodes import Node, Nodes, eventually
from .test_three_nodes import admin, consume, create, in_sync, produce

LAST_EPOCH = 2**31 - 1


def state_file(node: Node) -> Path:
    return node.data_dir / "__cluster_metadata-0" / "quorum-state"


def repair(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "cluster", "repair-epoch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def ends_with(node: Node, sentence: str) -> bool:
    """Return whether a start fails at once, with one sentence that names the remedy."""
    node.start(wait=False)
    assert node.process is not None
    process, node.process = node.process, None
    assert process.wait(60) == 2
    last = node.log_text().splitlines()[-1]
    return sentence in last and "ottla cluster repair-epoch" in last and "Traceback" not in node.log_text()


def test_a_cluster_without_epochs_is_repaired(nodes: Nodes) -> None:
    client = admin(*nodes.nodes)
    create(client, "t", partitions=3)
    eventually(lambda: in_sync(client, "t", 3), "all replicas are in sync")
    before = [f"before-{number}" for number in range(100)]
    produce(nodes, "t", before)
    directories = [str(node.data_dir) for node in nodes.nodes]

    refused = repair(*directories, "--execute")
    assert refused.returncode == 2
    assert "is in use by a running node" in refused.stderr
    assert "Traceback" not in refused.stderr
    for node in nodes.nodes:
        node.stop()
    idle = repair(*directories, "--execute")
    assert idle.returncode == 0
    assert idle.stdout.count("nothing to repair") == 3

    # State after the Vote of an unguarded version: the last epoch, durable, on all nodes.
    for node in nodes.nodes:
        file = state_file(node)
        file.write_bytes(encode_fields(decode_fields(file.read_bytes()) | {"leaderEpoch": LAST_EPOCH, "leaderId": -1}))
    assert all(ends_with(node, "no leader epoch is left") for node in nodes.nodes)

    dry = repair(*directories)
    assert dry.returncode == 0
    assert json.loads(state_file(nodes[1]).read_text())["leaderEpoch"] == LAST_EPOCH
    done = repair(*directories, "--execute", "--json")
    assert done.returncode == 0
    for row in json.loads(done.stdout)["directories"]:
        assert row["epoch"] == LAST_EPOCH
        assert row["log_epoch"] < row["new_epoch"] < 2_000_000
    nodes.start()
    eventually(lambda: in_sync(client, "t", 3), "all replicas are in sync again")
    after = [f"after-{number}" for number in range(100)]
    produce(nodes, "t", after)
    assert sorted(consume(nodes, "t", 200)) == sorted(before + after)
    create(client, "new", partitions=1)
    for node in nodes.nodes:
        node.stop()
    assert repair(*directories, "--execute").stdout.count("nothing to repair") == 3, "a second run changes nothing"


def test_unrepairable_directories_are_not_changed(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    refused = repair(str(empty), "--execute")
    assert refused.returncode == 2
    assert "is not a data directory" in refused.stderr
    assert list(empty.iterdir()) == []


def test_directory_without_the_metadata_log_is_refused(tmp_path: Path) -> None:
    """A node with several log.dirs has the metadata log in one of them."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    refused = repair(str(tmp_path), "--execute")
    assert refused.returncode == 2
    assert f"{tmp_path} contains no quorum-state: give the directory with the metadata log" in refused.stderr


def test_pipe_instead_of_a_segment_does_not_block(tmp_path: Path) -> None:
    log = tmp_path / "__cluster_metadata-0"
    log.mkdir()
    (tmp_path / "meta.properties").write_text("version=1\n")
    os.mkfifo(log / f"{0:020d}.log")
    refused = repair(str(tmp_path), "--execute")
    assert refused.returncode == 2
    assert f"{0:020d}.log" in refused.stderr
    assert "regular file" in refused.stderr
