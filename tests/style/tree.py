"""The source as the rules of this folder see it: every module, parsed once, and the report of violations."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "ottla"
SIMULATION = ROOT / "simulation"


@cache
def modules() -> tuple[Path, ...]:
    """Every module of the package and of the simulation, in the order of their paths."""
    return tuple(sorted([*SOURCE.rglob("*.py"), *SIMULATION.rglob("*.py")]))


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module, cached and never modified."""
    return ast.parse(path.read_text(encoding="utf-8"), path)


def module_id(path: Path) -> str:
    """A module in a list of exceptions: `net/connection.py`, `simulation/loop.py`."""
    roots = (root for root in (SOURCE, ROOT) if path.is_relative_to(root))
    return str(path.relative_to(next(roots, path.parent)))


def place(path: Path, line: int = 1) -> str:
    """A line in a report: `src/ottla/net/connection.py:12`."""
    return f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name}:{line}"


def place_at(path: Path, text: str, position: int) -> str:
    """The line of a position in the text of a file."""
    return place(path, text.count("\n", 0, position) + 1)


def report(violations: Iterable[str]) -> None:
    """Fail with all violations, one per line as `path:line what`; return if there are none."""
    found = list(violations)
    if found:
        pytest.fail("\n".join([f"{len(found)} violations", *found]), pytrace=False)
