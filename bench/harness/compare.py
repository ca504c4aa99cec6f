"""Comparison of two Ottla revisions by ratio, A B A B: a regression is a figure that grew by more than the limit.

The base is checked out by `git worktree` into a temporary directory and installed from there (`pip install --target`,
with its compiled module); the head is this checkout. Both are started by the same Python with the same dependencies;
only PYTHONPATH differs. The worktree is removed afterwards.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.peers import ROOT
from harness.report import shown


@contextmanager
def installed(revision: str) -> Iterator[Path]:
    """Installs the package of that revision into a folder for PYTHONPATH."""
    with tempfile.TemporaryDirectory(prefix="ottla-base-") as folder:
        tree, site = Path(folder) / "tree", Path(folder) / "site"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), revision], cwd=ROOT, check=True)
        try:
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
            subprocess.run([*pip, "--target", str(site), str(tree)], check=True)
            yield site
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def worsening(row: Mapping[str, Any], which: str) -> float:
    """Returns the ratio head / base of a figure, inverted where more is better: above one is worse."""
    value: float = row["ratio"][which]
    return value if row["better"] == "less" else 1 / value if value else 1.0


def regressions(summary: Sequence[Mapping[str, Any]], limit: float) -> list[Mapping[str, Any]]:
    """Returns the yardsticks with a median above the limit that were worse in every round."""
    return [
        row
        for row in summary
        if row["yardstick"]
        and row["ratio"]
        and worsening(row, "median") > limit
        and min(worsening(row, "min"), worsening(row, "max")) > 1
    ]


def verdict(summary: Sequence[Mapping[str, Any]], limit: float) -> str:
    """Returns all yardsticks as text, the worst first."""
    rows = sorted(
        (row for row in summary if row["yardstick"] and row["ratio"]), key=lambda row: -worsening(row, "median")
    )
    lines = [f"{shown(row['ratio']):>22}  {row['cell']}: {row['figure']}, {row['unit']}" for row in rows]
    worse = regressions(summary, limit)
    return "\n".join(["head / base, the worst first", *lines, f"{len(worse)} worse by more than {limit:g}"])
