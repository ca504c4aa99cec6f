"""Every import contract bites: a planted violation in a copy of the tree makes lint-imports fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

VIOLATIONS = {
    "a lower layer imports a higher one": ("storage/planted.py", "import ottla.server"),
    "a package without a place": ("planted/__init__.py", ""),
    "a tool imports the broker": ("cli/planted.py", "import ottla.server"),
    "a tool writes to storage": ("cli/planted.py", "import ottla.storage.log"),
    "the controller does input and output": ("controller/planted.py", "import socket"),
    "the broker imports a client library": ("server/planted.py", "import confluent_kafka"),
}


def run_contracts(tree: Path) -> subprocess.CompletedProcess[str]:
    """The contracts of pyproject.toml over the copy at `tree`."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    environment = {"PYTHONPATH": str(tree / "src"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the source and the contracts."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_contracts_hold(tree: Path) -> None:
    result = run_contracts(tree)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_planted_violation_is_found(tree: Path, name: str) -> None:
    path, statement = VIOLATIONS[name]
    planted = tree / "src" / "ottla" / path
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(f'"""Planted."""\n{statement}\n')
    result = run_contracts(tree)
    assert result.returncode != 0, result.stdout
    assert "BROKEN" in result.stdout or "planted" in result.stdout + result.stderr
