"""Value format `--envelope`: the columns of the rows in change events, and the decoder of the events.

It wraps the format of `--decode`, which reads the events. The columns are those of the rows: from the schemas in a
sample of the values (JSON with schemas, Avro, Protobuf), else inferred from the rows of the sample.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.avro_format import AvroFormat
from ottla.pipeline.transform.columns import match_key, table_name
from ottla.pipeline.transform.decoder import Decoder
from ottla.pipeline.transform.envelope import (
    ENVELOPES,
    KIND_COLUMN,
    Envelope,
    EnvelopeDecoder,
    EnvelopeReader,
    same_columns,
)
from ottla.pipeline.transform.envelope_json import JsonEnvelopeDecoder, event_groups, row_fields
from ottla.pipeline.transform.protobuf_format import ProtobufFormat
from ottla.pipeline.transform.type_hints import with_hints
from ottla.pipeline.transform.value_format import JsonFormat, Samples, ValueFormat, with_fields
from ottla.pipeline.transform.widening import respelled
from ottla.schemas.ids import IdLength, id_length

FORMATS = {"debezium": (JsonFormat, AvroFormat, ProtobufFormat), "maxwell": (JsonFormat,)}
"""Envelope -> formats of its events."""
_NO_FIELDS = pa.schema([])


@dataclass(frozen=True, slots=True)
class EnvelopeFormat:
    """`events`: the format of events. `is_history`: as in `envelope`."""

    envelope: Envelope
    events: JsonFormat | AvroFormat | ProtobufFormat
    is_history: bool

    @property
    def is_inferred(self) -> bool:
        return self.events.is_inferred

    @property
    def id_length(self) -> IdLength | None:
        return self.events.id_length

    def fields(self, held: pa.Schema, samples: Samples) -> pa.Schema:
        """The fields of rows, and in a history KIND_COLUMN. Raises OperatorError."""
        if not isinstance(self.events, JsonFormat):
            found = self._rows_of(self.events.fields(_NO_FIELDS, samples))
            found = with_fields(held, found) if self.is_inferred else found
        elif self.events.schema is not None:
            found = self.events.fields(held, samples)
        else:
            found = self._json_fields(self.events, held, samples)
        if self.is_history:  # a field of that name in a row has no column
            others = [one for one in found if match_key(one.name) != KIND_COLUMN]
            return pa.schema([*others, pa.field(KIND_COLUMN, pa.string())])
        return found

    def decoder(self, fields: pa.Schema) -> Decoder:
        kind = fields.get_field_index(KIND_COLUMN)
        if self.is_history and kind >= 0 and not pa.types.is_string(fields.field(kind).type):
            raise OperatorError(
                f"the table has the column {KIND_COLUMN!r} of type {fields.field(kind).type}, but the kind of a change "
                "is text; load the events into another table"
            )
        row = pa.schema([one for one in fields if one.name != KIND_COLUMN]) if self.is_history else fields
        if isinstance(self.events, JsonFormat):
            return JsonEnvelopeDecoder(
                self.envelope, row, self.is_history, self.events.has_ids, self.events.is_inferred
            )
        reader = EnvelopeReader(self.envelope, same_columns(row), self.is_history)
        return EnvelopeDecoder(self.events.decoder(reader.events), reader)

    def _rows_of(self, events: pa.Schema) -> pa.Schema:
        """The fields of rows from those of events; those of a row that is deleted come second."""
        found = _NO_FIELDS
        for name in (self.envelope.row, self.envelope.deleted_row):
            number = events.get_field_index(name)
            if number >= 0 and pa.types.is_struct(events.field(number).type):
                found = with_fields(found, pa.schema(list(events.field(number).type)))
        if not found.names and not self.is_inferred:
            raise OperatorError(
                f"the schema has no record in the field {self.envelope.row!r}, so its values are not change events by "
                f"--envelope {self.envelope.name}; omit the option, or name the schema of the events"
            )
        return found

    def _json_fields(self, events: JsonFormat, held: pa.Schema, samples: Samples) -> pa.Schema:
        """The fields that the schemas in values name, and those of rows in values without one."""
        found = held
        rows: dict[str, pa.Array] = {}
        for topic, values in samples.items():
            bare: list[bytes] = []
            for group in [] if events.has_ids else event_groups(values):
                if group.schema is None:  # those with defects are skipped there
                    bare += self._bare_rows(group.events)
                else:
                    found = self._with_schema(found, group.schema)
            if events.has_ids:
                bare += self._bare_rows(values)
            rows[topic] = pa.array(bare, pa.binary())
        found = with_hints(found, events.hints, held)
        return replace(events, has_ids=False).infer(found, rows).schema if any(map(len, rows.values())) else found

    def _with_schema(self, found: pa.Schema, schema: dict[str, Any]) -> pa.Schema:
        try:
            fields = row_fields(schema, self.envelope)
        except ValueError:
            return found  # its values become dead letters
        named = pa.struct([(table_name(one.name), one.type) for one in fields])
        return with_fields(found, pa.schema(list(respelled(named, pa.struct(list(found))))))

    def _bare_rows(self, values: pa.Array) -> Iterator[bytes]:
        """The rows of events as JSON."""
        for value in values.drop_null().to_pylist():
            try:
                event = json.loads(value[id_length(value) if self.id_length else 0 :])
            except (ValueError, RecursionError):
                continue  # becomes a dead letter
            if isinstance(event, dict):
                for name in dict.fromkeys((self.envelope.row, self.envelope.deleted_row)):
                    if isinstance(event.get(name), dict):
                        yield json.dumps(event[name]).encode()


def enveloped(name: str, events: ValueFormat | None, decode: str, *, is_history: bool) -> EnvelopeFormat:
    """The format of change events whose format is `events`. Raises OperatorError for one that has no such events."""
    if not isinstance(events, FORMATS[name]):
        choices = {JsonFormat: "json", AvroFormat: "avro", ProtobufFormat: "protobuf"}
        raise OperatorError(
            f"--envelope {name} needs the fields of change events, and --decode {decode} has none; use it with "
            f"--decode {' or '.join(choices[one] for one in FORMATS[name])}"
        )
    if isinstance(events, AvroFormat):
        events = replace(events, connect_types=True)
    return EnvelopeFormat(ENVELOPES[name], events, is_history)
