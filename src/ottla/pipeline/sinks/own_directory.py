"""A table's directory is the table's alone: what else lies there, or around it, would be in danger.

A vacuum takes files that no version names, whoever put them there (Delta's own does, whatever their names), and readers
of files take everything for rows. Entries whose names begin with `_` or `.` are left out, as readers of lake tables do,
and so are data files of loads: those of dead letters are there before their table is.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection

from ottla.common.errors import OperatorError
from ottla.pipeline.sinks.writer import load_of
from ottla.pipeline.stores.store import Store

_HIDDEN = ("_", ".")
_MARKS = {"_delta_log": ".json", "_ottla_log": ".json", "metadata": ".metadata.json"}
"""What a table of one of the formats has in its directory: where, and how the names end."""


def require_own_directory(store: Store, own: Collection[str] = ()) -> None:
    """Raise OperatorError unless a table can be made there: nothing but `own` is in it, and it is in no other table.

    Raises OSError when that can't be seen.
    """
    if store.exists():
        other = next((name for name in store.entries() if not _may_stay(name, own)), None)
        if other is not None:
            raise OperatorError(
                f"no table can be made in {store.location}, which holds other things, {other!r} for one: a vacuum of "
                "the table would take them; choose another place with --table"
            )
    for child, parent in itertools.pairwise(store.ancestors()):
        if not child.name.startswith(_HIDDEN) and _is_table(parent):
            raise OperatorError(
                f"no table can be made in {store.location}, which lies within the table {parent.location}: a vacuum of "
                "that would take it; choose another place with --table"
            )


def _may_stay(name: str, own: Collection[str]) -> bool:
    return name in own or name.startswith(_HIDDEN) or load_of(name) is not None


def _is_table(store: Store) -> bool:
    return any(file.path.endswith(ending) for directory, ending in _MARKS.items() for file in store.files(directory))
