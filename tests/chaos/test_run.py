"""A short run of `make chaos` in each mode, from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..cluster.nodes import eventually
from .__main__ import INTERRUPTED, obstacle

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.root, pytest.mark.skipif(bool(obstacle()), reason=f"chaos {obstacle()}")]


def chaos(tmp_path: Path, *arguments: str) -> dict:
    """The figures of a run that was clean."""
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.chaos", "--json", str(figures), *arguments]
    ended = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=270)
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
    return json.loads(figures.read_text())


@pytest.mark.promise("R1")
def test_nothing_is_lost(tmp_path):
    figures = chaos(tmp_path, "--minutes", "0.7", "--seed", "7")
    assert sum(figures["faults"].values()) >= 4
    assert figures["operations"]["acknowledged"] > 200
    assert figures["operations"]["read by assignment"] > figures["operations"]["acknowledged"]
    assert figures["transactions"]["committed"] > 3
    assert figures["bytes of replicas compared"] > 0
    assert figures["batches with their leader epoch in the file"] > figures["transactions"]["committed"]
    assert figures["lost"] == {"acknowledged": 0, "served": 0}


def test_documented_losses_are_reported(tmp_path):
    figures = chaos(tmp_path, "--minutes", "0.3", "--seed", "3", "--lossy")
    assert figures["mode"] == "acks=1, unclean elections"
    assert figures["operations"]["acknowledged"] > 100
    assert set(figures["lost"]) == {"acknowledged", "served"}


def test_an_interrupted_run_ends_and_leaves_nothing(tmp_path):
    command = [sys.executable, "-m", "tests.chaos", "--minutes", "5", "--keep", str(tmp_path / "kept")]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as running:
        eventually(lambda: list(tmp_path.glob("ottla-chaos-*/node-*.ready")), "the brokers run", 60.0)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(60) == INTERRUPTED
    assert {path.name for path in tmp_path.iterdir()} == {"kept"}


def test_wrong_option_is_reported(tmp_path):
    command = [sys.executable, "-m", "tests.chaos", "--brokers", "2"]
    ended = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "--brokers" in ended.stderr
