"""Python objects to columns, for formats that are read value by value.

A Python object takes some hundred times the bytes that it was read from, so few values are objects at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ottla.pipeline.transform.decoder import DecodedValues, cell_count, decode_by_halves, item_cells
from ottla.pipeline.transform.fit import field_at, first_misfit, has_float_from, number_misfit, shown

ReadRow = Callable[[bytes], dict[str, Any]]
"""The fields of one value; raises ValueError when it is bad."""
MAX_OBJECT_BYTES = 1 << 20
"""Maximum bytes of values that are objects at once, except for a single value."""


def most_cells(values: pa.Array, schema: pa.Schema) -> int:
    """As `Decoder.most_cells`, for formats in which an item of a list takes at least one byte."""
    type_ = pa.struct(list(schema))
    return len(values) * cell_count(type_) + int(values.nbytes) * item_cells(type_)


def decode_rows(values: pa.Array, schema: pa.Schema, read: ReadRow) -> DecodedValues:
    """Decode value by value. Fields without a column are ignored, absent ones are null."""

    def parse(part: pa.Array) -> pa.RecordBatch:
        return _to_batch([read(value) for value in part.to_pylist()], schema)

    def defect(value: bytes) -> str | None:
        try:
            read(value)
        except ValueError as error:
            return str(error)
        return None

    return decode_by_halves(values, schema, parse, defect, max_bytes=MAX_OBJECT_BYTES)


def _to_batch(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Raises ValueError when a column can't hold a value of a row."""
    type_ = pa.struct(list(schema))
    try:
        batch = pa.RecordBatch.from_struct_array(pa.array(rows, type_))
    except (TypeError, ValueError, OverflowError) as error:  # ArrowTypeError is a TypeError
        raise ValueError(_misfit(rows, type_) or str(error)) from error
    if any(has_float_from(column, math.inf) for column in batch.columns) and (reason := _misfit(rows, type_)):
        raise ValueError(reason)
    return batch


def _misfit(rows: list[dict[str, Any]], type_: pa.DataType) -> str | None:
    """The first number that does not fit its column."""
    return next((reason for row in rows if (reason := first_misfit("", row, type_, _number_misfit))), None)


def _number_misfit(path: str, value: Any, type_: pa.DataType) -> str | None:
    reason = number_misfit(value, type_)
    return f"{field_at(path)} is {shown(value)}, {reason}" if reason else None
