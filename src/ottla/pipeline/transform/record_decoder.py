"""Rows of the table from records and their decoded values; records with bad values become dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.model.decode import DEAD_LETTER_SCHEMA, SCHEMA
from ottla.pipeline.model.years import has_times, outside_years
from ottla.pipeline.transform.columns import CORRUPT_COLUMN, CORRUPT_TYPE, RESERVED_COLUMNS, column_name
from ottla.pipeline.transform.decoder import MAX_CELLS, Decoder, add_bounded
from ottla.pipeline.transform.schema_ids import encoded_values
from ottla.pipeline.transform.schema_report import Tally
from ottla.record.batch import NO_TIMESTAMP
from ottla.schemas.ids import IdLength

CORRUPT_NAMES = [part.name for part in CORRUPT_TYPE]


@dataclass(frozen=True, slots=True)
class RecordDecoder:
    """`schema`: that of the rows, Kafka's columns first; columns that the decoder does not return are null.

    `id_length`: that of the values' format. `reserved`: column names that a field gets only with a prefix.
    """

    decoder: Decoder
    schema: pa.Schema
    id_length: IdLength | None = None
    reserved: frozenset[str] = RESERVED_COLUMNS

    def pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The same rows in order, in pieces that can be decoded with bounded memory."""
        waiting = [batch]
        while waiting:
            piece = waiting.pop()
            if piece.num_rows == 1 or self.decoder.most_cells(piece.column("value")) <= MAX_CELLS:
                yield piece
            else:  # by halves, so that one large value does not split all small ones
                middle = piece.num_rows // 2
                waiting += [piece.slice(middle), piece.slice(0, middle)]

    def decode(self, batch: pa.RecordBatch, tally: Tally | None = None) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """(rows, dead letters) of a batch by `decode.SCHEMA`: each record is in one of them, None for no letters.

        If the schema has CORRUPT_COLUMN, bad values are null there and no letters. `tally` counts unknown
        fields and these values.
        """
        rows, reasons = self.decode_all(batch, tally)
        if not reasons:
            return rows, None
        bad = sorted(reasons)
        good = np.ones(batch.num_rows, np.bool_)
        good[bad] = False
        if CORRUPT_COLUMN in self.schema.names:
            if tally is not None:
                tally.nulled += len(bad)
            return _with_corrupt(rows, batch, good, [reasons[place] for place in bad]), None
        letters = dead_letters_of(batch.filter(pa.array(~good)), [reasons[place] for place in bad])
        return rows.filter(pa.array(good)), letters

    def decode_all(self, batch: pa.RecordBatch, tally: Tally | None = None) -> tuple[pa.RecordBatch, dict[int, str]]:
        """The rows of all records of a batch, and the reason at the position of each that can't be decoded, whose row
        is void. The row of a value that deletes has a null value, as a tombstone. `tally` counts unknown fields."""
        decoded = self.decoder.decode(encoded_values(batch, self.id_length))
        found = {name: batch.column(name) for name in SCHEMA.names}
        if decoded.deleted is not None and decoded.deleted.true_count:
            found["value"] = pc.if_else(decoded.deleted, None, found["value"])
        for name, column in zip(decoded.columns.schema.names, decoded.columns.columns, strict=True):
            found[column_name(name, self.reserved)] = column
        columns = [
            found[column.name].cast(column.type) if column.name in found else pa.nulls(batch.num_rows, column.type)
            for column in self.schema
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if tally is not None:
            add_bounded(tally.unknown, decoded.unknown)
        return rows, _out_of_years(rows) | dict(zip(decoded.bad, decoded.reasons, strict=True))


def _with_corrupt(
    rows: pa.RecordBatch, batch: pa.RecordBatch, good: npt.NDArray[np.bool_], reasons: list[str]
) -> pa.RecordBatch:
    """The rows with null in the decoded columns of bad ones, which CORRUPT_COLUMN explains instead."""
    bad = pa.array(~good)
    places = pa.array(np.cumsum(~good) - 1, mask=good)
    texts = [escaped_text(value) for value in batch.column("value").filter(bad).to_pylist()]
    corrupt = pa.StructArray.from_arrays([pa.array(reasons, pa.string()), pa.array(texts, pa.string())], CORRUPT_NAMES)
    columns = []
    for column in rows.schema:
        if column.name == CORRUPT_COLUMN:
            columns.append(corrupt.take(places).cast(column.type))
        elif column.name in SCHEMA.names:
            columns.append(rows.column(column.name))
        else:
            columns.append(pc.if_else(bad, pa.scalar(None, column.type), rows.column(column.name)))
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def escaped_text(value: bytes | None) -> str | None:
    """A value as text: UTF-8, other bytes as \\xNN."""
    return None if value is None else value.decode("utf-8", "backslashreplace")


def _out_of_years(rows: pa.RecordBatch) -> dict[int, str]:
    """Positions of rows with a day or time outside the years that all readers support."""
    found: dict[int, str] = {}
    for column in rows.schema:
        if column.name in SCHEMA.names or not has_times(column.type):
            continue  # a record's own time is in bounds
        for place in np.flatnonzero(outside_years(rows.column(column.name))).tolist():
            found.setdefault(place, f"the column {column.name!r} has a time that is not within the years 1 to 9999")
    return found


def dead_letters_of(batch: pa.RecordBatch, reasons: list[str]) -> pa.RecordBatch:
    """Rows with Kafka's columns as rows of the table of dead letters."""
    milliseconds = pc.divide(batch.column("timestamp").cast(pa.int64()), 1000)
    columns = {name: batch.column(name) for name in batch.schema.names} | {
        "timestamp_ms": pc.fill_null(milliseconds, NO_TIMESTAMP),
        "reason": pa.array(reasons, pa.string()),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in DEAD_LETTER_SCHEMA.names], schema=DEAD_LETTER_SCHEMA)
