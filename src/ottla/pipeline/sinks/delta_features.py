"""Requirements of a Delta table on its writers (the protocol's "Writer Requirements") that a load doesn't meet.

A load adds files that Spark's workers wrote without delta-rs, which would handle some of these features. Such files in
a table with column mapping read as nulls; in one with constraints they may violate them. A compaction rewrites rows
that are already in the table, so their values meet the requirements.
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
"""Metadata keys of a column with the expression that computes it or a condition on its values."""
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
        # checked separately where they are used
        "checkConstraints",
        "columnMapping",
        "generatedColumns",
        "identityColumns",
        "invariants",
    }
)
"""Features without requirements on a writer that only adds files."""


def require_writable(location: str, table: Any) -> None:
    """Raise OperatorError for a table in which a load would write wrong rows or lose offsets. `table`: of delta-rs."""
    settings = table.metadata().configuration
    if TRANSACTION_RETENTION in settings:
        raise OperatorError(
            f"the table {location} sets {TRANSACTION_RETENTION}, which would forget loaded offsets and load "
            "records twice; remove that property"
        )
    asked = next(itertools.chain(_asked_of_files(table), _asked_of_rows(table, settings)), None)
    if asked is not None:
        raise OperatorError(f"the table {location} has {asked}, which loads don't support; load into another table")


def require_compactable(location: str, table: Any) -> None:
    """Raise OperatorError for a table whose files need more than their rows. `table`: of delta-rs."""
    asked = next(_asked_of_files(table), None)
    if asked is not None:
        raise OperatorError(
            f"the table {location} has {asked}, which `ottla pipeline compact` doesn't support; use the OPTIMIZE "
            "of the engine that created the table"
        )


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
