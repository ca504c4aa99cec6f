"""The names of decoded fields in a table, beside the columns that every Kafka record has and the date of partitions.

A field named like one of those gets the prefix `value_`: `offset` becomes `value_offset`, and a field that is named
`value_offset` itself gets it again, so that no two fields have one column. Names are told apart without regard to case,
as Spark does; of fields that differ in case only, the first has a column. The characters that Delta keeps out of column
names have no substitute: a field with one of them has no column, nor has one with a name longer than MAX_NAME_LENGTH,
which each commit and each file would repeat.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.pipeline.decode import SCHEMA
from ottla.pipeline.sinks.partitioning import DATE_COLUMN

PREFIX = "value_"
UNUSABLE_CHARACTERS = frozenset(" ,;{}()\n\t=")
"""What Delta refuses in names of columns without column mapping (its protocol, "Column Mapping")."""
MAX_NAME_LENGTH = 255
MAX_FIELDS = 10_000
RESERVED_COLUMNS = frozenset([*SCHEMA.names, DATE_COLUMN])


class FieldCount:
    """Counts the fields of a schema, of all levels: by names that are used again, a short text can mean any number."""

    def __init__(self) -> None:
        self._count = 0

    def add(self) -> None:
        """Raises ValueError beyond MAX_FIELDS."""
        self._count += 1
        if self._count > MAX_FIELDS:
            raise ValueError(f"it has more than {MAX_FIELDS:,} fields of all levels")


def column_name(field: str, reserved: frozenset[str] = RESERVED_COLUMNS) -> str:
    """The column of a top-level field."""
    return PREFIX + field if _gets_prefix(field, reserved) else field


def field_name(column: str, reserved: frozenset[str] = RESERVED_COLUMNS) -> str:
    """The top-level field of a column."""
    field = column.removeprefix(PREFIX)
    return field if _gets_prefix(field, reserved) else column


def _gets_prefix(field: str, reserved: frozenset[str]) -> bool:
    while field.startswith(PREFIX):
        field = field[len(PREFIX) :]
    return field.lower() in reserved


def usable_names(fields: Iterable[str]) -> list[str]:
    """Those that a table can have side by side, in order."""
    taken: set[str] = set()
    found = []
    for name in fields:
        if name.lower() not in taken and _is_usable(name):
            taken.add(name.lower())
            found.append(name)
    return found


def _is_usable(name: str) -> bool:
    """True for names that a table can have."""
    return 0 < len(name) <= MAX_NAME_LENGTH and not UNUSABLE_CHARACTERS & set(name) and name.isprintable()
