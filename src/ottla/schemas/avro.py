"""Avro schemas, checked before fastavro reads values by them.

Logical types other than dates, timestamps and decimals are removed, so that fastavro returns the stored values.

Hostile values: fastavro bounds neither its recursion nor the claimed length of an array of items without bytes. So no
value is read by a schema that contains itself or has such an array, nor by one whose items have many fields without
bytes, each of which is a Python object.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from ottla.schemas.bounds import FieldCount
from ottla.schemas.registry import RegisteredSchema, SchemaRegistry

MAX_DEPTH = 64
MAX_DECIMAL_DIGITS = 38
MAX_EMPTY_FIELDS = 16
"""Maximum fields without bytes, as those of type null, in an item of an array or map."""
LOGICAL_TYPES = frozenset({
    ("int", "date"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
})  # fmt: skip

VALUE = "value"
_ROOT = "Root_of_Ottla"
"""Name of the record around a value: a bare union can't refer to named types of other schemas."""

Schema = str | list[Any] | dict[str, Any]


class AvroSchemaError(ValueError):
    """The schema can't decode values; the message contains the reason."""


@dataclass(frozen=True, slots=True)
class AvroWriter:
    """Writer schema: `parsed` is for fastavro, as a record with the field VALUE alone; `named` has its named types."""

    parsed: Any
    named: Mapping[str, Any]

    @property
    def root(self) -> Schema:
        """The schema of values."""
        root: Schema = self.parsed["fields"][0]["type"]
        return root

    def read(self, value: bytes, start: int = 0) -> Any:
        """Decode a value that begins at `start`. Raises ValueError."""
        file = io.BytesIO(value)
        file.seek(start)
        try:
            found = fastavro.schemaless_reader(file, self.parsed, None)
        except (EOFError, LookupError, ValueError, ArithmeticError, TypeError) as error:
            reason = str(error) or "it ends too early"
            raise ValueError(f"the value is not written by its schema: {reason}") from error
        if file.tell() != len(value):
            raise ValueError(f"the value has {len(value) - file.tell()} bytes after the record of its schema")
        return found[VALUE]


def parse_writer(text: str, references: Iterable[str] = ()) -> AvroWriter:
    """`references`: schemas that it refers to, each after its own references. The result is not yet checked; see
    `SchemaWalk.require_bounded`. Raises AvroSchemaError."""
    named: dict[str, Any] = {}
    try:
        for reference in references:
            fastavro.parse_schema(_without_other_logical_types(json.loads(reference)), named_schemas=named)
        value = {"name": VALUE, "type": _without_other_logical_types(json.loads(text))}
        whole = {"type": "record", "name": _ROOT, "fields": [value]}
        parsed = fastavro.parse_schema(whole, named_schemas=named)
    except (ValueError, TypeError, LookupError, RecursionError, SchemaParseException, UnknownType) as error:
        raise AvroSchemaError(f"it is not a valid Avro schema: {error}") from error
    return AvroWriter(parsed, named)


def writer_of_text(text: str, references: Iterable[str] = ()) -> AvroWriter:
    """A checked writer schema of any type. Raises AvroSchemaError, and ValueError for too many fields."""
    writer = parse_writer(text, references)
    SchemaWalk(writer.named).require_bounded(writer.root, frozenset(), 0)
    return writer


def texts_of_registered(registry: SchemaRegistry, found: RegisteredSchema) -> tuple[str, list[str]]:
    """The text of a registry's schema, and those of its references. Raises UnknownSchemaError, AvroSchemaError, and
    OperatorError if the registry is unreachable."""
    if found.kind != "AVRO":
        raise AvroSchemaError(f"it is a schema of type {found.kind}, not AVRO")
    return found.text, [schema.text for _, schema in registry.references(found)]


def _without_other_logical_types(schema: Any, depth: int = 0) -> Any:
    """The schema without logical types that have no column type, so that fastavro returns the stored values."""
    if depth > MAX_DEPTH:
        raise AvroSchemaError(f"it is nested more than {MAX_DEPTH} deep")
    if isinstance(schema, list):
        return [_without_other_logical_types(one, depth + 1) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _without_other_logical_types(value, depth + 1) for name, value in schema.items() if name != "default"}
    if (str(kept.get("type")), str(kept.get("logicalType"))) not in LOGICAL_TYPES and not _is_decimal(kept):
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


class SchemaWalk:
    """Traversal of a parsed schema, in which names are full ones and definitions are at their first use."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._count = FieldCount()

    def resolved(self, schema: Schema) -> Schema:
        """The definition of a named type."""
        return self._named.get(schema, schema) if isinstance(schema, str) else schema

    def require_bounded(self, schema: Schema, entered: frozenset[str], depth: int) -> None:
        """Raise AvroSchemaError for a type that contains itself or is nested too deep, and for an array of items
        without bytes; ValueError for too many fields."""
        schema = self.resolved(schema)
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
        schema = self.resolved(schema)
        if isinstance(schema, list):
            return max(map(self._empty_fields, schema), default=0)
        if isinstance(schema, dict) and schema["type"] == "record":
            return sum(self._empty_fields(part["type"]) for part in schema["fields"])
        return int(self._has_no_bytes(schema))

    def _has_no_bytes(self, schema: Schema) -> bool:
        """Only for schemas that don't contain themselves."""
        schema = self.resolved(schema)
        if isinstance(schema, dict) and schema["type"] == "record":
            return all(self._has_no_bytes(part["type"]) for part in schema["fields"])
        return schema == "null" or (isinstance(schema, dict) and (schema["type"] == "null" or schema.get("size") == 0))
