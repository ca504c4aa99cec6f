"""The tests of three nodes once more, with their clusters on three servers of ZooKeeper in place of a quorum."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.ensemble import Ensemble

ROOT = Path(__file__).parents[2]
TESTS = (
    "test_three_nodes.py",
    "test_replicas.py",
    "test_transactions.py",
    "test_transaction_partitions.py",
    "test_failed_directory.py::test_its_partitions_move_and_the_rest_goes_on",
)
"""Others are about the quorum, its metadata log, its listener or its formatting."""
TIMEOUT_S = 1200.0


@pytest.mark.parametrize("name", TESTS)
def test_three_nodes_on_zookeeper(name: str, kafka_of: Callable[[str], str], tmp_path: Path) -> None:
    with Ensemble(kafka_of("3.9"), tmp_path) as servers:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/cluster/{name}"],
            cwd=ROOT,
            env={**os.environ, "OTTLA_CLUSTER_ON_ZOOKEEPER": servers.address},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout
