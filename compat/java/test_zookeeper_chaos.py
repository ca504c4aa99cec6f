"""A short run of `make chaos COORDINATION=zookeeper`: brokers and servers under faults, in separate networks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.chaos.__main__ import obstacle
from tests.chaos.security import KINDS

ROOT = Path(__file__).parents[2]
WITHIN_S = 600.0

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=f"chaos {obstacle()}")


@pytest.mark.promise("Z1")
@pytest.mark.parametrize("security", KINDS)
def test_nothing_is_lost(security: str, zookeeper_classpath: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.chaos", "--coordination", "zookeeper", "--security", security]
    ended = subprocess.run(
        [*command, "--minutes", "0.8", "--seed", "7", "--json", str(figures)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
    found = json.loads(figures.read_text())
    assert sum(found["faults"].values()) >= 4
    assert found["reigns of controllers"] >= 1
    assert found["transactions"]["committed"] > 3
    assert found["lost"] == {"acknowledged": 0, "served": 0}
