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
from tests.cluster.metadata_kinds import MORE_ON_ZOOKEEPER, ON_ZOOKEEPER

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 1200.0


def chosen(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The suites to run."""
    return ON_ZOOKEEPER + MORE_ON_ZOOKEEPER if environment.get("OTTLA_TESTS") == "all" else ON_ZOOKEEPER


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
