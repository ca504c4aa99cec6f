"""A start that is refused: exit code 2, one sentence, nothing changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

START_S = 120


def start(*arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run `ottla start` until it exits."""
    command = [*prefix, sys.executable, "-m", "ottla", "start", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)


def refusal(*arguments: str, prefix: tuple[str, ...] = ()) -> str:
    """The one sentence of a start that was refused."""
    result = start(*arguments, prefix=prefix)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("ottla: "), result.stderr
    return lines[0]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
