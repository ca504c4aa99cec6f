"""Client suites with brokers on three ZooKeeper servers instead of a quorum.

Suites of third-party clients use three brokers. Suites that compare responses use one broker, which is then the
coordinator of every group.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.ensemble import Ensemble
from tests.cluster.nodes import Nodes

ROOT = Path(__file__).parents[2]
CLIENTS = (
    "compat/kcat",
    "compat/kafkajs",
    "compat/go",
    "compat/older",
    "compat/java/test_clients.py",
    "compat/java/test_groups.py",
)
OF_ONE_BROKER = (
    "compat/kcat/test_kcat.py::test_metadata",  # expects a broker that is the first and the controller
    "compat/go/test_go.py::test_administration",  # expects one broker
)
TABLES = ("tests/clients/test_group_errors.py", "tests/clients/test_transactions.py", "tests/cli/test_txn.py")
TIMEOUT_S = 1200.0


@pytest.mark.parametrize(
    ("brokers", "suites"), [(3, CLIENTS), (1, (*OF_ONE_BROKER, *TABLES))], ids=["clients", "tables"]
)
def test_client_suites_on_zookeeper(
    brokers: int,
    suites: tuple[str, ...],
    group_configs: dict[str, object],
    zookeeper_classpath: str,
    tmp_path: Path,
) -> None:
    settings = {name: str(value) for name, value in group_configs.items()}
    # Nothing fails here: the session must last even on a busy machine.
    settings["zookeeper.session.timeout.ms"] = "18000"
    settings["transaction.partition.verification.enable"] = "false"  # required by tests/cli/test_txn.py
    left_out = [f"--deselect={test}" for test in OF_ONE_BROKER if test not in suites]
    with Ensemble(zookeeper_classpath, tmp_path) as servers:
        nodes = Nodes(tmp_path, brokers, settings, zookeeper=servers.address)
        try:
            nodes.start()
            ended = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *left_out, *suites],
                cwd=ROOT,
                env={**os.environ, "OTTLA_TEST_BOOTSTRAP": nodes[1].address},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        finally:
            nodes.close()
    assert ended.returncode == 0, ended.stdout
