"""Avro schemas: checks before fastavro reads values by them, and the columns of their fields.

Null and one other type become that type; int and long become long, float and double become double. A field of any other
union, or with a name that no table can have, has no column. Times of day, durations and nanoseconds are the numbers and
bytes that are stored.

Values of a union have the columns of all its records, where a field that a record lacks is null. If two records have
different types for a field, the wider one is used, else that of the first. A null of the union is a row of nulls, like
a tombstone.

Hostile values: fastavro bounds neither its recursion nor the claimed length of an array of items without bytes. So no
value is read by a schema that contains itself or has such an array, nor by one whose items have many fields without
bytes, each of which is a Python object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from ottla.pipeline.transform.columns import FieldCount, usable_names
from ottla.pipeline.transform.widening import adapted

MAX_DEPTH = 64
MAX_DECIMAL_DIGITS = 38
MAX_EMPTY_FIELDS = 16
"""Maximum fields without bytes, as those of type null, in an item of an array or map."""
_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL_TYPES = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_PROMOTED = ((frozenset({"int", "long"}), pa.int64()), (frozenset({"float", "double"}), pa.float64()))

VALUE = "value"
_ROOT = "Root_of_Ottla"
"""Name of the record around a value: a bare union can't refer to named types of other schemas."""

Schema = str | list[Any] | dict[str, Any]


class AvroSchemaError(ValueError):
    """The schema can't decode values; the message contains the reason."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """Writer schema: for fastavro, as a record with the field VALUE alone, and as columns."""

    parsed: Schema
    fields: pa.Schema


def parse_avro(text: str, references: Iterable[str] = ()) -> AvroSchema:
    """`references`: schemas that it refers to, each after its own references. Raises AvroSchemaError."""
    named: dict[str, Any] = {}
    try:
        for reference in references:
            fastavro.parse_schema(_without_other_logical_types(json.loads(reference)), named_schemas=named)
        value = {"name": VALUE, "type": _without_other_logical_types(json.loads(text))}
        whole = {"type": "record", "name": _ROOT, "fields": [value]}
        parsed = fastavro.parse_schema(whole, named_schemas=named)
    except (ValueError, TypeError, LookupError, RecursionError, SchemaParseException, UnknownType) as error:
        raise AvroSchemaError(f"it is not a valid Avro schema: {error}") from error
    walk = _Walk(named)
    root = parsed["fields"][0]["type"]
    records = walk.records(root)
    walk.require_bounded(root, frozenset(), 0)
    type_ = reduce(adapted, (found for record in records if (found := walk.type(record)) is not None), pa.struct([]))
    return AvroSchema(parsed, pa.schema(list(type_)))


def _without_other_logical_types(schema: Any, depth: int = 0) -> Any:
    """The schema without logical types that have no column type, so that fastavro returns the stored values."""
    if depth > MAX_DEPTH:
        raise AvroSchemaError(f"it is nested more than {MAX_DEPTH} deep")
    if isinstance(schema, list):
        return [_without_other_logical_types(one, depth + 1) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _without_other_logical_types(value, depth + 1) for name, value in schema.items() if name != "default"}
    if (str(kept.get("type")), str(kept.get("logicalType"))) not in _LOGICAL_TYPES and not _is_decimal(kept):
        kept.pop("logicalType", None)
    return kept


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    digits, scale = schema.get("precision"), schema.get("scale", 0)
    return (
        schema.get("logicalType") == "decimal"
        and schema.get("type") in ("bytes", "fixed")
        and isinstance(digits, int)
        and isinstance(scale, int)
        and 0 <= scale <= digits <= MAX_DECIMAL_DIGITS
        and digits > 0
    )


class _Walk:
    """Traversal of a parsed schema, in which names are full ones and definitions are at their first use."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._count = FieldCount()

    def _resolved(self, schema: Schema) -> Schema:
        return self._named.get(schema, schema) if isinstance(schema, str) else schema

    def records(self, root: Schema) -> list[Schema]:
        """The record that a schema is, or the records of a union. Raises AvroSchemaError for other schemas."""
        branches = [self._resolved(one) for one in (root if isinstance(root, list) else [root])]
        found: list[Schema] = [one for one in branches if isinstance(one, dict) and one["type"] == "record"]
        if not found:
            raise AvroSchemaError("it is not the schema of a record, so its values have no fields")
        if len(found) + branches.count("null") < len(branches):
            raise AvroSchemaError("it is a union of records and other types, and values of other types have no fields")
        return found

    def require_bounded(self, schema: Schema, entered: frozenset[str], depth: int) -> None:
        """Raise AvroSchemaError for a type that contains itself or is nested too deep, and for an array of items
        without bytes; ValueError for too many fields."""
        schema = self._resolved(schema)
        self._count.add()
        if depth > MAX_DEPTH:
            raise AvroSchemaError(f"it is nested more than {MAX_DEPTH} deep")
        depth += 1
        if isinstance(schema, list):
            for one in schema:
                self.require_bounded(one, entered, depth)
        elif isinstance(schema, dict) and schema["type"] == "record":
            if schema["name"] in entered:
                raise AvroSchemaError(f"its type {schema['name']} contains itself")
            for part in schema["fields"]:
                if not isinstance(part["name"], str):
                    raise AvroSchemaError(f"it has a field name that is not a string: {part['name']!r}")
                self.require_bounded(part["type"], entered | {schema["name"]}, depth)
        elif isinstance(schema, dict) and schema["type"] == "array":
            self.require_bounded(schema["items"], entered, depth)
            self._require_few_empty(schema["items"])
            if self._has_no_bytes(schema["items"]):
                raise AvroSchemaError("it has an array of items without bytes: a value could claim any number of them")
        elif isinstance(schema, dict) and schema["type"] == "map":
            self.require_bounded(schema["values"], entered, depth)
            self._require_few_empty(schema["values"])

    def _require_few_empty(self, item: Schema) -> None:
        if self._empty_fields(item) > MAX_EMPTY_FIELDS:
            raise AvroSchemaError(
                f"it has an array or map of items with more than {MAX_EMPTY_FIELDS} fields without bytes"
            )

    def _empty_fields(self, schema: Schema) -> int:
        """Fields of one value, without those in its arrays and maps. Only for schemas that don't contain themselves."""
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return max(map(self._empty_fields, schema), default=0)
        if isinstance(schema, dict) and schema["type"] == "record":
            return sum(self._empty_fields(part["type"]) for part in schema["fields"])
        return int(self._has_no_bytes(schema))

    def _has_no_bytes(self, schema: Schema) -> bool:
        """Only for schemas that don't contain themselves."""
        schema = self._resolved(schema)
        if isinstance(schema, dict) and schema["type"] == "record":
            return all(self._has_no_bytes(part["type"]) for part in schema["fields"])
        return schema == "null" or (isinstance(schema, dict) and (schema["type"] == "null" or schema.get("size") == 0))

    def type(self, schema: Schema) -> pa.DataType | None:
        """The column type; None for a type without a column."""
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return self._union([one for one in schema if one != "null"])
        if isinstance(schema, str):
            return _TYPES.get(schema)
        kind = schema["type"]
        if kind == "record":
            found = {part["name"]: type_ for part in schema["fields"] if (type_ := self.type(part["type"])) is not None}
            names = usable_names(found)
            return pa.struct([(name, found[name]) for name in names]) if names else None
        if kind in ("array", "map"):
            inner = self.type(schema["items" if kind == "array" else "values"])
            if inner is None:
                return None
            return pa.list_(inner) if kind == "array" else pa.map_(pa.string(), inner)
        if schema.get("logicalType") == "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        return _LOGICAL_TYPES.get((kind, schema.get("logicalType", ""))) or _TYPES.get(kind)

    def _union(self, others: list[Schema]) -> pa.DataType | None:
        if len(others) == 1:
            return self.type(others[0])
        kinds = {one if isinstance(one, str) else "" for one in others}
        return next((type_ for promoted, type_ in _PROMOTED if kinds and kinds <= promoted), None)
