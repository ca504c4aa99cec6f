"""Types of single columns that an operator names beside inference: `--type 'price: double'`."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.columns import match_key, table_name, usable_names
from ottla.pipeline.transform.widening import widened

_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
"""Spark's names."""
_DECIMAL = re.compile(r"decimal\((?P<precision>\d{1,2}),(?P<scale>\d{1,2})\)")
_MAP = re.compile(r"map<string,(?P<item>[a-z]+)>")
MAP_ITEMS = frozenset({"string", "boolean", "int", "integer", "long", "bigint", "double"})
MAX_DIGITS = 38


def parse_hints(texts: Iterable[str]) -> pa.Schema:
    """The columns of texts such as `price: double`. Raises OperatorError."""
    found: dict[str, pa.DataType] = {}
    for text in texts:
        name, colon, kind = text.rpartition(":")
        name = table_name(name.strip())
        type_ = _type_of(kind.replace(" ", "").lower()) if colon else None
        if type_ is None or usable_names([name]) != [name]:
            raise OperatorError(
                f"--type {text!r} is not NAME: TYPE with a column name and one of {', '.join(_TYPES)}, decimal(P,S), "
                f"map<string,{'|'.join(sorted(MAP_ITEMS))}>, such as 'price: double'"
            )
        if match_key(name) in set(map(match_key, found)):
            raise OperatorError(f"--type names the column {name!r} twice; name it once")
        found[name] = type_
    return pa.schema(list(found.items()))


def _type_of(text: str) -> pa.DataType | None:
    if match := _DECIMAL.fullmatch(text):
        precision, scale = int(match["precision"]), int(match["scale"])
        return pa.decimal128(precision, scale) if 0 < precision <= MAX_DIGITS and scale <= precision else None
    if match := _MAP.fullmatch(text):
        return pa.map_(pa.string(), _TYPES[match["item"]]) if match["item"] in MAP_ITEMS else None
    return _TYPES.get(text)


def with_hints(fields: pa.Schema, hints: pa.Schema, held: pa.Schema) -> pa.Schema:
    """The fields with the types of the hints, and those that only hints name.

    Raises OperatorError if a column of the table (`held`) can't be widened to a type.
    """
    types = {column.name.lower(): column for column in hints}
    for column in held:
        hint = types.get(column.name.lower())
        if hint is not None and widened(column.type, hint.type) is None:
            raise OperatorError(
                f"--type declares {hint.type} for {hint.name!r}, but the table has {column.type}, which can't be "
                "widened to it; omit it, or load into another table"
            )
    known = {column.name.lower() for column in fields}
    hinted = [
        column.with_type(types[column.name.lower()].type) if column.name.lower() in types else column
        for column in fields
    ]
    return pa.schema([*hinted, *(column for column in hints if column.name.lower() not in known)])
