"""Values in Avro's binary encoding, by fastavro: all written by one given schema, or each by a schema of a registry.

A value is read by the schema it was written with, and its fields go to the columns of their names; aliases and defaults
of other versions are ignored: a field that the writer did not have is null.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ottla.pipeline.transform.avro_schema import AvroSchema, parse_avro
from ottla.pipeline.transform.connect_avro import parse_zoned, zoned_columns
from ottla.pipeline.transform.decoder import DecodedValues
from ottla.pipeline.transform.rows import decode_rows, most_cells
from ottla.schemas.avro import AvroSchemaError, texts_of_registered
from ottla.schemas.ids import SchemaId, id_length, schema_id
from ottla.schemas.registry import RegisteredSchema, SchemaRegistry


@dataclass(slots=True)
class AvroDecoder:
    """`writer`: the schema of all values, without a registry. `connect_types`: as in `parse_avro`."""

    schema: pa.Schema
    writer: str | None = None
    registry: SchemaRegistry | None = None
    connect_types: bool = False
    _known: dict[SchemaId, AvroSchema] = field(default_factory=dict, repr=False, compare=False)
    _zoned: dict[str, list[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._zoned = zoned_columns(self.schema) if self.connect_types else {}

    def most_cells(self, values: pa.Array) -> int:
        return most_cells(values, self.schema)

    def decode(self, values: pa.Array) -> DecodedValues:
        """See `Decoder`. Raises OperatorError if the registry does not respond."""
        return decode_rows(values, self.schema, self._read)

    def _read(self, value: bytes) -> dict[str, Any]:
        number, start = (schema_id(value), id_length(value)) if self.registry else (0, 0)
        schema = self._known.get(number)
        if schema is None:
            schema = self._known[number] = self._find(number)
        found = dict(schema.writer.read(value, start) or {})
        if self._zoned:
            parse_zoned(found, self._zoned)
        return found

    def _find(self, number: SchemaId) -> AvroSchema:
        """Raises ValueError for an unknown id, and for a schema that can't decode values."""
        if self.registry is None:
            return parse_avro(self.writer or "", connect_types=self.connect_types)
        return registered_avro(self.registry, number, connect_types=self.connect_types)


def registered_avro(registry: SchemaRegistry, number: SchemaId, *, connect_types: bool = False) -> AvroSchema:
    """The schema of that id, by `parse_avro`. Raises UnknownSchemaError, AvroSchemaError, and OperatorError if the
    registry is unreachable."""
    try:
        return avro_of(registry, registry.schema(number), connect_types=connect_types)
    except AvroSchemaError as error:
        raise AvroSchemaError(f"the schema {number} in the registry can't be used: {error}") from error


def avro_of(registry: SchemaRegistry, found: RegisteredSchema, *, connect_types: bool = False) -> AvroSchema:
    """A schema of a registry, with its references. Raises as `registered_avro` does."""
    return parse_avro(*texts_of_registered(registry, found), connect_types=connect_types)
