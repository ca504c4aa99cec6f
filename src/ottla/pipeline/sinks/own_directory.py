"""Guard that a table is alone in its directory: other files in it, or around it, would be in danger.

A vacuum removes files that no version names, regardless of their origin (Delta's own also regardless of their names),
and readers of files take every file for rows. Entries whose names begin with `_` or `.` are exempt, as in all lake
tables. So are data files of loads: those of dead letters exist before their table does.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection

from ottla.common.errors import OperatorError
from ottla.pipeline.sinks.writer import load_of
from ottla.pipeline.stores.store import Store

_HIDDEN = ("_", ".")
_MARKS = {"_delta_log": ".json", "_ottla_log": ".json", "metadata": ".metadata.json"}
"""Metadata of a table of each format: directory, and the ending of its file names."""


def require_own_directory(store: Store, own: Collection[str] = ()) -> None:
    """Raise OperatorError unless a table can be created there: it contains nothing but `own`, and is not inside another
    table.

    Raises OSError when the store can't be read.
    """
    if store.exists():
        other = next((name for name in store.entries() if not _may_stay(name, own)), None)
        if other is not None:
            raise OperatorError(
                f"no table can be created in {store.location}, which contains other files, {other!r} for one: a "
                "vacuum of the table would remove them; choose another place with --table"
            )
    for child, parent in itertools.pairwise(store.ancestors()):
        if not child.name.startswith(_HIDDEN) and _is_table(parent):
            raise OperatorError(
                f"no table can be created in {store.location}, inside the table {parent.location}: a vacuum of the "
                "outer table would remove it; choose another place with --table"
            )


def _may_stay(name: str, own: Collection[str]) -> bool:
    return name in own or name.startswith(_HIDDEN) or load_of(name) is not None


def _is_table(store: Store) -> bool:
    return any(file.path.endswith(ending) for directory, ending in _MARKS.items() for file in store.files(directory))
