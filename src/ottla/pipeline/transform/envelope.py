"""Change events of databases: an envelope around a row, with the kind of the change.

The rows of a table are those in the envelopes. A decoder of the value's format reads the few fields of the envelope
that matter, with the row as a struct; here the columns of the row are taken out of it, many events at a time.

There are two ways to use events. As a history, each event is a row with its kind in the column KIND_COLUMN: the row
after the change, or the deleted row as far as the event has it. As changes, the kind is not a column, and the events
that delete are marked in `DecodedValues.deleted`.

An event without a row, such as a truncation, is bad as a change: it does not name the keys that it changes.

Sources: Debezium's documentation of data change events (fields `before`, `after`, `op`), and that of Maxwell's JSON
(fields `data`, `type`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.transform.connect_types import Convert
from ottla.pipeline.transform.decoder import DecodedValues, Decoder, reason_text
from ottla.pipeline.transform.fit import field_at

KIND_COLUMN = "__op"
"""As Debezium's ExtractNewRecordState names it."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """Fields of an envelope. `changes`: kinds of events with a row; `whole`: kinds without one that change a table."""

    name: str
    kind: str
    row: str
    deleted_row: str
    """The field with the row that an event deletes."""
    changes: Sequence[str]
    delete: str
    whole: Sequence[str] = ()


ENVELOPES = {
    each.name: each
    for each in (
        Envelope("debezium", "op", "after", "before", ("c", "u", "r"), "d", ("t",)),
        Envelope("maxwell", "type", "data", "data", ("insert", "update", "bootstrap-insert"), "delete"),
    )
}


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column of the table, and the field `name` of the row with its values; None: it has no such field.

    `stored`: the type to read the field with. `convert`: from there to the column's type, None if it is the same.
    """

    field: pa.Field
    name: str | None
    stored: pa.DataType
    convert: Convert | None = None


def same_columns(fields: pa.Schema) -> list[RowColumn]:
    """The columns of rows whose fields have the names and types of the table."""
    return [RowColumn(one, one.name, one.type) for one in fields]


@dataclass(frozen=True, slots=True)
class EnvelopeReader:
    """Reads events with rows of these columns. `is_history`: see the module."""

    envelope: Envelope
    columns: Sequence[RowColumn]
    is_history: bool

    @property
    def events(self) -> pa.Schema:
        """The fields of an event that a decoder has to read."""
        row = pa.struct([(one.name, one.stored) for one in self.columns if one.name is not None])
        names = dict.fromkeys([self.envelope.row, *([self.envelope.deleted_row] if self.is_history else [])])
        return pa.schema([*((name, row) for name in names), (self.envelope.kind, pa.string())])

    @property
    def schema(self) -> pa.Schema:
        """The columns of `rows`."""
        own = [(KIND_COLUMN, pa.string())] if self.is_history else []
        return pa.schema([*(one.field for one in self.columns), *own])

    def rows(self, values: pa.Array, events: DecodedValues) -> DecodedValues:
        """The rows of `values`, whose events a decoder read by the schema `events`."""
        found = events.columns
        kinds = found.column(self.envelope.kind)
        deletes = pc.fill_null(pc.equal(kinds, self.envelope.delete), False)
        defects = dict(zip(events.bad, events.reasons, strict=True))
        for place in np.flatnonzero(self._bad(values, found, kinds, deletes)).tolist():
            defects.setdefault(place, self._reason(kinds[place].as_py()))
        columns = []
        row = self._row(found, deletes)
        for one in self.columns:
            column, bad = _converted(one, row, len(values))
            columns.append(column)
            for place in np.flatnonzero(bad).tolist() if bad is not None else ():
                defects.setdefault(
                    place, f"{field_at(str(one.name))} has a value that its column of type {one.field.type} can't hold"
                )
        if self.is_history:
            columns.append(kinds)
        bad_places = sorted(defects)
        return replace(
            events,
            columns=pa.RecordBatch.from_arrays(columns, schema=self.schema),
            bad=bad_places,
            reasons=[reason_text(defects[place]) for place in bad_places],
            unknown={},  # fields of the envelope and of the row are counted alike
            deleted=None if self.is_history else deletes,
        )

    def _bad(
        self, values: pa.Array, found: pa.RecordBatch, kinds: pa.Array, deletes: pa.Array
    ) -> npt.NDArray[np.bool_]:
        has_row = pc.and_(
            pc.is_in(kinds, pa.array(self.envelope.changes, pa.string())), found.column(self.envelope.row).is_valid()
        )
        good = pc.or_(pc.or_(deletes, has_row), values.is_null())
        if self.is_history:
            good = pc.or_(good, pc.is_in(kinds, pa.array(self.envelope.whole, pa.string())))
        bad: npt.NDArray[np.bool_] = ~good.to_numpy(zero_copy_only=False)
        return bad

    def _reason(self, kind: str | None) -> str:
        one = self.envelope
        option = f"--envelope {one.name}"
        if kind is None:
            return f"the value is not a change event by {option}: it has no field {one.kind!r}"
        if kind in one.changes:
            return f"the value is not a change event by {option}: it has no row in its field {one.row!r}"
        if kind in one.whole:
            return (
                f"the event truncates the source table ({one.kind} {kind!r}) and names no keys, so a snapshot can't "
                "apply it: rows from before it stay"
            )
        return f"the event has the kind {kind!r} in its field {one.kind!r}, which is not a change of a row by {option}"

    def _row(self, found: pa.RecordBatch, deletes: pa.Array) -> dict[str, pa.Array]:
        """The fields of rows by their names, null where an event has no row."""
        row = _fields_of(found.column(self.envelope.row))
        if not self.is_history or self.envelope.deleted_row == self.envelope.row:
            return row
        deleted = _fields_of(found.column(self.envelope.deleted_row))
        return {name: pc.if_else(deletes, deleted[name], column) for name, column in row.items()}


def _fields_of(row: pa.StructArray) -> dict[str, pa.Array]:
    return dict(zip(row.type.names, row.flatten(), strict=True))


def _converted(
    one: RowColumn, row: Mapping[str, pa.Array], count: int
) -> tuple[pa.Array, npt.NDArray[np.bool_] | None]:
    """A column of `count` rows, and flags for values that don't fit; None: all fit."""
    if one.name is None:
        return pa.nulls(count, one.field.type), None
    column = row[one.name]
    return (column, None) if one.convert is None else one.convert(column, one.field.type)


@dataclass(frozen=True, slots=True)
class EnvelopeDecoder:
    """Decodes change events with a decoder of their format, whose schema is that of `reader.events`."""

    events: Decoder
    reader: EnvelopeReader
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", self.reader.schema)

    def most_cells(self, values: pa.Array) -> int:
        return self.events.most_cells(values)

    def decode(self, values: pa.Array) -> DecodedValues:
        """See `Decoder`."""
        return self.reader.rows(values, self.events.decode(values))
