"""Change events in JSON, bare or each with its schema, as `JsonConverter` of Kafka Connect writes both.

With `schemas.enable` a value is `{"schema": ..., "payload": EVENT}`, and the schema is the same text in the values of
many records. So values are grouped by that text, which is parsed once. A value's own schema decides on its row, never
that of its neighbours: stored values of logical types, such as days, become those of the column (`connect_types`).

Bare events have the types of the table's columns, as other values in JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.transform.columns import match_key
from ottla.pipeline.transform.connect_types import ConnectField, connect_fields
from ottla.pipeline.transform.decoder import DecodedValues, Places, empty_rows, reason_text, spread
from ottla.pipeline.transform.envelope import Envelope, EnvelopeDecoder, EnvelopeReader, RowColumn, same_columns
from ottla.pipeline.transform.json_decoder import JsonDecoder

MAX_KNOWN_SCHEMAS = 256
"""Maximum number of schemas whose decoders are kept."""
_BEGINNING = r'\A[ \t\r\n]*\{[ \t\r\n]*"schema"[ \t\r\n]*:[ \t\r\n]*'
_BEGINNING_PATTERN = re.compile(_BEGINNING)
_PAYLOAD_PATTERN = re.compile(r'[ \t\r\n]*,[ \t\r\n]*"payload"[ \t\r\n]*:')


def schema_text(value: bytes) -> tuple[bytes, dict[str, Any] | None]:
    """(text in front of the event, schema or null) of a value that begins with a schema. Raises ValueError."""
    text = value.decode()
    start = _BEGINNING_PATTERN.match(text)
    try:
        schema, end = json.JSONDecoder().raw_decode(text, start.end() if start else 0)
    except RecursionError as error:
        raise ValueError("its schema is nested too deep") from error
    payload = _PAYLOAD_PATTERN.match(text, end)
    if start is None or payload is None:
        raise ValueError("its schema is not followed by a payload")
    if schema is not None and not isinstance(schema, dict):
        raise ValueError("its schema is not an object")
    return text[: payload.end()].encode(), schema


def row_fields(schema: dict[str, Any], envelope: Envelope) -> list[ConnectField]:
    """The fields of the row of events with this schema. Raises ValueError."""
    parts = schema.get("fields")
    rows = [
        part
        for name in (envelope.row, envelope.deleted_row)
        for part in (parts if isinstance(parts, list) else ())
        if isinstance(part, dict) and part.get("field") == name
    ]
    if not rows:
        raise ValueError(f"its schema has no field {envelope.row!r}")
    return connect_fields(rows[0])


@dataclass(frozen=True, slots=True)
class EventGroup:
    """Values with the same schema, or those without one, at `places`, in the form of events."""

    places: Places
    events: pa.Array
    front: bytes = b""
    """The text in front of each event, with the schema; empty without one."""
    schema: dict[str, Any] | None = None
    defects: Sequence[str] = ()
    """Why each of the values can't be read; empty for a group that can."""


def event_groups(values: pa.Array) -> Iterator[EventGroup]:
    """All values that are not null, by their schemas."""
    wrapped = pc.fill_null(pc.match_substring_regex(values, _BEGINNING), False)
    bare = pc.and_(values.is_valid(), pc.invert(wrapped))
    if bare.true_count:
        whole = bare.true_count == len(values)
        yield EventGroup(_places(bare), values if whole else values.filter(bare))
    places, rest = _places(wrapped), values.filter(wrapped)
    bad: dict[int, str] = {}
    while len(rest):
        try:
            front, schema = schema_text(rest[0].as_py())
        except ValueError as error:
            bad[int(places[0])] = f"the value is not JSON with a schema: {error}"
            places, rest = places[1:], rest.slice(1)
            continue
        same = pc.starts_with(rest, front)
        yield EventGroup(places[_flags(same)], _events(rest.filter(same), len(front)), front, schema)
        others = pc.invert(same)
        places, rest = places[_flags(others)], rest.filter(others)
    if bad:
        places = np.array(list(bad), np.int64)
        yield EventGroup(places, values.take(pa.array(places)), defects=list(bad.values()))


def _events(values: pa.Array, start: int) -> pa.Array:
    """The events in values, without the brace that ends a value; values that end otherwise stay, and are not
    objects."""
    if not pc.all(pc.ends_with(values, b"}")).as_py():
        values = pc.replace_substring_regex(values, r"[ \t\r\n]+\z", "")
    closed = pc.ends_with(values, b"}")
    events = pc.binary_slice(values, start, -1)
    return events if closed.true_count == len(values) else pc.if_else(closed, events, values)


def _places(flags: pa.Array) -> Places:
    return np.flatnonzero(_flags(flags))


def _flags(array: pa.Array) -> Any:
    return array.to_numpy(zero_copy_only=False)


@dataclass(slots=True)
class JsonEnvelopeDecoder:
    """`schema`: the columns as `EnvelopeReader.schema` has them; `fields`: those of the row.

    `has_ids` and `is_inferred`: as in `JsonDecoder`, for bare events; values with ids have no schema in them.
    """

    envelope: Envelope
    fields: pa.Schema
    is_history: bool
    has_ids: bool = False
    is_inferred: bool = False
    schema: pa.Schema = field(init=False)
    _bare: EnvelopeDecoder = field(init=False, repr=False, compare=False)
    _known: dict[bytes, list[EnvelopeDecoder] | str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises OperatorError for a type that can't be read from JSON."""
        reader = EnvelopeReader(self.envelope, same_columns(self.fields), self.is_history)
        self.schema = reader.schema
        self._bare = EnvelopeDecoder(JsonDecoder(reader.events, self.has_ids, self.is_inferred), reader)

    def most_cells(self, values: pa.Array) -> int:
        return self._bare.most_cells(values)

    def decode(self, values: pa.Array) -> DecodedValues:
        """See `Decoder`."""
        if self.has_ids:
            return self._bare.decode(values)
        found = [(group.places, self._decode(group)) for group in event_groups(values)]
        return found[0][1] if len(found) == 1 and len(found[0][0]) == len(values) else self._joined(values, found)

    def _decode(self, group: EventGroup) -> DecodedValues:
        decoders = self._decoders(group)
        if isinstance(decoders, str):
            count = len(group.events)
            reasons = [reason_text(reason) for reason in group.defects] or [reason_text(decoders)] * count
            deleted = None if self.is_history else pa.array(np.zeros(count, np.bool_))
            return DecodedValues(empty_rows(count, self.schema), list(range(count)), reasons, deleted=deleted)
        decoded = decoders[0].decode(group.events)
        for decoder in decoders[1:]:
            if decoded.bad:
                decoded = self._second(decoded, group.events, decoder)
        return decoded

    def _second(self, first: DecodedValues, events: pa.Array, decoder: EnvelopeDecoder) -> DecodedValues:
        """The same rows, with those that only `decoder` can decode."""
        places = np.array(first.bad, np.int64)
        good = np.ones(len(events), np.bool_)
        good[places] = False
        kept = pa.array(good)
        deleted = None if first.deleted is None else first.deleted.filter(kept)
        second = decoder.decode(events.take(pa.array(places)))
        second = replace(second, reasons=[first.reasons[number] for number in second.bad])
        rest = DecodedValues(first.columns.filter(kept), deleted=deleted)
        return self._joined(events, [(np.flatnonzero(good), rest), (places, second)])

    def _decoders(self, group: EventGroup) -> list[EnvelopeDecoder] | str:
        """The decoders to try one after another, or the reason why there is none."""
        if group.defects:
            return group.defects[0]
        if group.schema is None:
            return [self._bare]
        known = self._known.get(group.front)
        if known is None:
            if len(self._known) >= MAX_KNOWN_SCHEMAS:
                self._known.clear()
            known = self._known[group.front] = self._new_decoders(group.schema)
        return known

    def _new_decoders(self, schema: dict[str, Any]) -> list[EnvelopeDecoder] | str:
        try:
            found = row_fields(schema, self.envelope)
        except ValueError as error:
            return f"the value is not a change event by --envelope {self.envelope.name}: {error}"
        decoders = [self._decoder(self._columns(found, decimals_as_numbers=False))]
        if any(pa.types.is_decimal(one.type) for one in found):
            decoders.append(self._decoder(self._columns(found, decimals_as_numbers=True)))
        return decoders

    def _decoder(self, columns: list[RowColumn]) -> EnvelopeDecoder:
        reader = EnvelopeReader(self.envelope, columns, self.is_history)
        return EnvelopeDecoder(JsonDecoder(reader.events, exact_names=True), reader)

    def _columns(self, found: Iterable[ConnectField], *, decimals_as_numbers: bool) -> list[RowColumn]:
        """The columns of the table, with the fields of a schema that have their names. A field whose column has another
        kind of type is read with the column's type.

        `decimals_as_numbers`: as with `decimal.format=NUMERIC`.
        """
        known: dict[str, ConnectField] = {}
        for one in found:
            known.setdefault(match_key(one.name), one)
        columns = []
        for column in self.fields:
            mine = known.get(match_key(column.name))
            if mine is None:
                columns.append(RowColumn(column, None, column.type))
            elif (
                mine.convert is None
                or mine.type.id != column.type.id
                or (decimals_as_numbers and pa.types.is_decimal(mine.type))
            ):
                columns.append(RowColumn(column, mine.name, column.type))
            else:
                columns.append(RowColumn(column, mine.name, mine.stored, mine.convert))
        return columns

    def _joined(self, values: pa.Array, parts: list[tuple[Places, DecodedValues]]) -> DecodedValues:
        """One result for `values` from those of parts of them."""
        bad = sorted(
            (int(places[place]), reason)
            for places, part in parts
            for place, reason in zip(part.bad, part.reasons, strict=True)
        )
        columns = spread([part.columns for _, part in parts], [places for places, _ in parts], len(values), self.schema)
        deleted = None
        if not self.is_history:
            flags = np.zeros(len(values), np.bool_)
            for places, part in parts:
                flags[places] = _flags(part.deleted)
            deleted = pa.array(flags)
        return DecodedValues(columns, [place for place, _ in bad], [reason for _, reason in bad], deleted=deleted)
