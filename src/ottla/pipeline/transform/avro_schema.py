"""Columns of the fields of an Avro schema; `schemas.avro` checks it.

Null and one other type become that type; int and long become long, float and double become double. A field of any other
union, or with a name that no table can have, has no column. Times of day, durations and nanoseconds are the numbers and
bytes that are stored.

Values of a union have the columns of all its records, where a field that a record lacks is null. If two records have
different types for a field, the wider one is used, else that of the first. A null of the union is a row of nulls, like
a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa

from ottla.pipeline.transform.columns import usable_names
from ottla.pipeline.transform.connect_avro import ZONED_TYPE, is_zoned_timestamp, with_avro_types
from ottla.pipeline.transform.widening import adapted
from ottla.schemas.avro import AvroSchemaError, AvroWriter, Schema, SchemaWalk, parse_writer

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


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """Writer schema, and its fields as columns."""

    writer: AvroWriter
    fields: pa.Schema


def parse_avro(text: str, references: Iterable[str] = (), *, connect_types: bool = False) -> AvroSchema:
    """`references`: schemas that it refers to, each after its own references. `connect_types`: fields have the types
    of Kafka Connect and Debezium. Raises AvroSchemaError."""
    if connect_types:
        text, references = with_avro_types(text), map(with_avro_types, references)
    writer = parse_writer(text, references)
    walk = _ColumnWalk(writer.named, connect_types=connect_types)
    records = walk.records(writer.root)
    walk.require_bounded(writer.root, frozenset(), 0)
    type_ = reduce(adapted, (found for record in records if (found := walk.type(record)) is not None), pa.struct([]))
    return AvroSchema(writer, pa.schema(list(type_)))


class _ColumnWalk(SchemaWalk):
    """Traversal of a parsed schema to columns."""

    def __init__(self, named: Mapping[str, Any], *, connect_types: bool) -> None:
        super().__init__(named)
        self._connect_types = connect_types

    def records(self, root: Schema) -> list[Schema]:
        """The record that a schema is, or the records of a union. Raises AvroSchemaError for other schemas."""
        branches = [self.resolved(one) for one in (root if isinstance(root, list) else [root])]
        found: list[Schema] = [one for one in branches if isinstance(one, dict) and one["type"] == "record"]
        if not found:
            raise AvroSchemaError("it is not the schema of a record, so its values have no fields")
        if len(found) + branches.count("null") < len(branches):
            raise AvroSchemaError("it is a union of records and other types, and values of other types have no fields")
        return found

    def type(self, schema: Schema) -> pa.DataType | None:
        """The column type; None for a type without a column."""
        schema = self.resolved(schema)
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
        if self._connect_types and is_zoned_timestamp(schema):
            return ZONED_TYPE
        return _LOGICAL_TYPES.get((kind, schema.get("logicalType", ""))) or _TYPES.get(kind)

    def _union(self, others: list[Schema]) -> pa.DataType | None:
        if len(others) == 1:
            return self.type(others[0])
        kinds = {one if isinstance(one, str) else "" for one in others}
        return next((type_ for promoted, type_ in _PROMOTED if kinds and kinds <= promoted), None)
