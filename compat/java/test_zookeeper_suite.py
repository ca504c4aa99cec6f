"""Runs suites of three-node clusters on three ZooKeeper servers instead of a quorum.

By default these are few: the two differ in the metadata log, of which `tests/metadata/test_log_contract.py` and
`tests/metadata/test_cluster_contract.py` compare both implementations in simulation. `OTTLA_TESTS=all` runs all suites.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.cluster.ensemble import Ensemble

ROOT = Path(__file__).parents[2]
FILES = ("test_three_nodes", "test_replicas", "test_transactions")
"""Simulations lack real sessions, with kill -9, SIGSTOP and rolling restarts of the processes that keep them,
librdkafka's groups and transactions on leaders that ZooKeeper's controllers elect.
"""
OF_ALL_TESTS = (
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
"""Subjects that do not depend on the metadata log, or whose part in it the contract covers."""
OF_THE_QUORUM = {
    "test_quorum_processes": "voters, their elections and their directories",
    "test_epoch_repair": "the epoch of voters, and their log",
    "test_operation_pages": "procedures of clusters with a quorum, as printed",
    "test_top": "the screen of `ottla top`, which asks the same requests of both",
    "test_feature_levels": "raises metadata.version on nodes that were formatted with older ones",
    "test_roles": "process.roles, and the voters of the configuration",
    "test_supervisor": "`ottla start --brokers` makes a quorum",
}
"""Subjects of the other modules; single tests have the mark `of_the_quorum`."""
TIMEOUT_S = 1200.0


def test_every_module_is_listed() -> None:
    listed = [*FILES, *OF_ALL_TESTS, *OF_THE_QUORUM]
    assert sorted(listed) == sorted(path.stem for path in (ROOT / "tests/cluster").glob("test_*.py"))


def chosen(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The suites to run."""
    return FILES + OF_ALL_TESTS if environment.get("OTTLA_TESTS") == "all" else FILES


@pytest.mark.parametrize("name", chosen(os.environ))
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
