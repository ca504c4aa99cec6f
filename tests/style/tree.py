"""The source as the rules of this folder see it: every module, parsed once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

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
    """A module as the name of a test or in a message."""
    return str(path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT))
