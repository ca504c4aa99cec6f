"""What a Delta table asks of its writers (the protocol's "Writer Requirements"), and a load doesn't do.

A load adds files that Spark's workers wrote, past delta-rs, which would look after some of this. Such files in a table
with column mapping read as nulls; in one with constraints they may break what its readers rely on. A compaction writes
rows that are in the table already, so what is asked of their values they have.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from ottla.common.errors import OperatorError

TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
MAPPING_MODE = "delta.columnMapping.mode"
_CONSTRAINT_PREFIX = "delta.constraints."
_MADE_BY_WRITERS = ("delta.generationExpression", "delta.identity.start", "delta.invariants")
"""In the metadata of a column: what it is computed from, and what its values satisfy."""
_HARMLESS = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "variantType",
        "variantType-preview",
        "vacuumProtocolCheck",
        # which are looked for where they are used
        "checkConstraints",
        "columnMapping",
        "generatedColumns",
        "identityColumns",
        "invariants",
    }
)
"""Features that ask nothing of a writer who only adds files."""


def require_writable(location: str, table: Any) -> None:
    """Raise OperatorError for a table whose rows or offsets would not be what they should. `table`: of delta-rs."""
    settings = table.metadata().configuration
    if TRANSACTION_RETENTION in settings:
        raise OperatorError(
            f"the table {location} sets {TRANSACTION_RETENTION}, which would forget loaded offsets and load "
            "records twice; remove that property"
        )
    asked = next(itertools.chain(_asked_of_files(table), _asked_of_rows(table, settings)), None)
    if asked is not None:
        raise OperatorError(f"the table {location} has {asked}, which loads don't do; load into another table")


def require_compactable(location: str, table: Any) -> None:
    """Raise OperatorError for a table whose files have to be more than their rows. `table`: of delta-rs."""
    asked = next(_asked_of_files(table), None)
    if asked is not None:
        raise OperatorError(f"the table {location} has {asked}, which our compaction doesn't do; use that of its maker")


def _asked_of_files(table: Any) -> Iterator[str]:
    if table.metadata().configuration.get(MAPPING_MODE, "none") != "none":
        yield f"column mapping ({MAPPING_MODE})"
    for feature in sorted(set(table.protocol().writer_features or ()) - _HARMLESS):
        yield f"the feature {feature!r} for writers"


def _asked_of_rows(table: Any, settings: dict[str, str]) -> Iterator[str]:
    for name in settings:
        if name.startswith(_CONSTRAINT_PREFIX):
            yield f"the constraint {name.removeprefix(_CONSTRAINT_PREFIX)!r} on its rows"
    for column in table.schema().fields:
        if not column.nullable:
            yield f"the column {column.name!r} that takes no null"
        for name in _MADE_BY_WRITERS:
            if name in column.metadata:
                yield f"the column {column.name!r} with {name}"
