"""Runs the suites of three-node clusters on three ZooKeeper servers instead of a quorum."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.ensemble import Ensemble

ROOT = Path(__file__).parents[2]
FILES = (
    "test_three_nodes",
    "test_replicas",
    "test_transactions",
    "test_transaction_partitions",
    "test_sessions",
    "test_failed_directory",
    "test_damage",
    "test_sasl",
    "test_tls",
    "test_kerberos",
    "test_three_hosts",
    "test_leader_epochs",
)
OF_THE_QUORUM = {
    "test_quorum_processes": "voters, their elections and their directories",
    "test_epoch_repair": "the epoch of voters, and their log",
    "test_feature_levels": "raises metadata.version on nodes that were formatted with older ones",
    "test_roles": "process.roles, and the voters of the configuration",
    "test_supervisor": "`ottla start --brokers` makes a quorum",
}
"""Subjects of the other modules; single tests have the mark `of_the_quorum`."""
TIMEOUT_S = 1200.0


def test_every_module_is_listed() -> None:
    assert sorted([*FILES, *OF_THE_QUORUM]) == sorted(path.stem for path in (ROOT / "tests/cluster").glob("test_*.py"))


@pytest.mark.parametrize("name", FILES)
def test_three_nodes_on_zookeeper(name: str, zookeeper_classpath: str, tmp_path: Path) -> None:
    with Ensemble(zookeeper_classpath, tmp_path) as servers:
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
