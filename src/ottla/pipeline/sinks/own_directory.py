"""A table's directory is the table's alone: what else lies there, or around it, would be in danger.

A vacuum takes files that no version names, whoever put them there (Delta's own does, whatever their names), and readers
of files take everything for rows. Entries whose names begin with `_` or `.` are left out, as readers of lake tables do,
and so are data files of loads: those of dead letters are there before their table is.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from ottla.common.errors import OperatorError
from ottla.pipeline.sinks.writer import load_of

_HIDDEN = ("_", ".")
_MARKS = ("_delta_log/*.json", "_ottla_log/*.json", "metadata/*.metadata.json")
"""What a table of one of the formats has in its directory."""


def require_own_directory(directory: Path, own: Collection[str] = ()) -> None:
    """Raise OperatorError unless a table can be made there: nothing but `own` is in it, and it is in no other table.

    Raises OSError when that can't be seen.
    """
    if directory.is_dir():
        other = next((path.name for path in directory.iterdir() if not _may_stay(path, own)), None)
        if other is not None:
            raise OperatorError(
                f"no table can be made in {directory}, which holds other things, {other!r} for one: a vacuum of the "
                "table would take them; choose another directory with --table"
            )
    child = Path(os.path.realpath(directory))
    for parent in child.parents:
        if not child.name.startswith(_HIDDEN) and _is_table(parent):
            raise OperatorError(
                f"no table can be made in {directory}, which lies within the table {parent}: a vacuum of that would "
                "take it; choose another directory with --table"
            )
        child = parent


def _may_stay(path: Path, own: Collection[str]) -> bool:
    return path.name in own or path.name.startswith(_HIDDEN) or load_of(path) is not None


def _is_table(directory: Path) -> bool:
    return any(path for mark in _MARKS for path in directory.glob(mark))
