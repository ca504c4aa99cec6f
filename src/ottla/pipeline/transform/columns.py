"""The names of decoded fields in a table, beside the columns that every Kafka record has and the date of partitions.

A field named like one of those gets the prefix `value_`: `offset` becomes `value_offset`. A field that is named
`value_offset` itself gets it again, so that no two fields have one column. Names are compared without regard to case,
as Spark does; of fields that differ in case only, the first has a column.

Each of the characters that Delta forbids in column names is `_` in every table format: `unit price` has the column
`unit_price`. Such names are spellings of the column, as those in another case are: `unit price`, `Unit_Price` and
`unit(price` are one field, in any load, so that the column of a field never depends on the fields beside it. A field
with another unprintable character has no column, nor has one with a name longer than MAX_NAME_LENGTH, which each commit
and each file would repeat.

A field that is nested deeper than MAX_LEVELS has no column: Delta's reader refuses a table with 43 structs in each
other.

A name may contain a dot, but no two fields have columns of the same path, written with dots as Iceberg finds columns:
of `a.b` and the field `b` of `a` only the first has a column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import pyarrow as pa

from ottla.pipeline.model.decode import SCHEMA
from ottla.pipeline.sinks.partitioning import DATE_COLUMN

PREFIX = "value_"
UNUSABLE_CHARACTERS = frozenset(" ,;{}()\n\t=")
"""Characters that Delta forbids in names of columns without column mapping (its protocol, "Column Mapping")."""
SUBSTITUTE = "_"
MAX_NAME_LENGTH = 255
MAX_LEVELS = 40
"""Maximum levels of fields in each other; the elements of a list and the values of a map are a level too."""
CORRUPT_COLUMN = "_corrupt"
"""Reason and text of a value that could not be decoded, in rows that were kept."""
CORRUPT_TYPE = pa.struct([("reason", pa.string()), ("text", pa.string())])
RESERVED_COLUMNS = frozenset([*SCHEMA.names, DATE_COLUMN, CORRUPT_COLUMN])


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


_SUBSTITUTES = str.maketrans(dict.fromkeys(UNUSABLE_CHARACTERS, SUBSTITUTE))


def table_name(field: str) -> str:
    """The name of a field in a table, at any level: without the characters that Delta forbids."""
    return field.translate(_SUBSTITUTES)


@lru_cache(maxsize=4096)
def match_key(field: str) -> str:
    """The same for all names that one column has: they differ in case, or in characters that a table can't have."""
    return table_name(field).lower()


def renamed_type(type_: pa.DataType) -> pa.DataType:
    """A type with the names of its fields as a table has them, at all levels."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(table_name(one.name), renamed_type(one.type), one.nullable) for one in type_])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(renamed_type(type_.value_type)))
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, renamed_type(type_.item_type))
    return type_


def renamed_paths(path: str, type_: pa.DataType) -> Iterator[tuple[str, str]]:
    """(path, name in a table) of the fields of a type that `renamed_type` renames."""
    if pa.types.is_struct(type_):
        for part in type_:
            inner = f"{path}.{part.name}".removeprefix(".")
            if table_name(part.name) != part.name:
                yield inner, table_name(part.name)
            yield from renamed_paths(inner, part.type)
    elif pa.types.is_list(type_):
        yield from renamed_paths(f"{path}[]", type_.value_type)


def usable_names(fields: Iterable[str]) -> list[str]:
    """The names that a table can have side by side, in order."""
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


def with_paths_of_their_own(columns: pa.Schema, held: pa.Schema) -> pa.Schema:
    """The columns without fields below MAX_LEVELS, and without those whose path another one has; columns of the table
    (`held`) stay."""
    owners: dict[str, set[_Path]] = {}
    for column in held:
        _note_paths(owners, column.type, (column.name,))
    kept = [(column, _with_own_paths(owners, column.type, (column.name,))) for column in columns]
    return pa.schema([column.with_type(type_) for column, type_ in kept if type_ is not None])


_Path = tuple[str, ...]


def _parts(type_: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """The direct children of a type, by their names in paths."""
    if pa.types.is_struct(type_):
        return [(part.name, part.type) for part in type_]
    if pa.types.is_map(type_):
        return [("key", type_.key_type), ("value", type_.item_type)]
    is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
    return [("element", type_.value_type)] if is_list else []


def _note_paths(owners: dict[str, set[_Path]], type_: pa.DataType, path: _Path) -> None:
    owners.setdefault(".".join(path).lower(), set()).add(path)
    for name, inner in _parts(type_):
        _note_paths(owners, inner, (*path, name))


def _with_own_paths(owners: dict[str, set[_Path]], type_: pa.DataType, path: _Path) -> pa.DataType | None:
    """The type without such fields; None if no field remains."""
    if len(path) > MAX_LEVELS or path not in owners.setdefault(".".join(path).lower(), {path}):
        return None
    parts = [(name, _with_own_paths(owners, inner, (*path, name))) for name, inner in _parts(type_)]
    if pa.types.is_struct(type_):
        kept = [type_.field(name).with_type(inner) for name, inner in parts if inner is not None]
        return pa.struct(kept) if kept else None
    if any(inner is None for _, inner in parts):
        return None
    if pa.types.is_map(type_):
        return pa.map_(*(inner for _, inner in parts))
    return pa.list_(type_.value_field.with_type(parts[0][1])) if parts else type_
