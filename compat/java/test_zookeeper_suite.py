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
FILES = ("test_three_nodes", "test_replicas", "test_transactions", "test_transaction_partitions")
"""Others are about the quorum, its listener, its formatting, or several data directories."""
TIMEOUT_S = 1200.0


@pytest.mark.parametrize("name", FILES)
def test_three_nodes_on_zookeeper(name: str, kafka_of: Callable[[str], str], tmp_path: Path) -> None:
    with Ensemble(kafka_of("3.9"), tmp_path) as servers:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/cluster/{name}.py"],
            cwd=ROOT,
            env={**os.environ, "OTTLA_CLUSTER_ON_ZOOKEEPER": servers.address},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout
