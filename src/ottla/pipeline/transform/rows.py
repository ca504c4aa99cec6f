"""Python objects to columns, for formats that are read value by value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ottla.pipeline.transform.decoder import DecodedValues, decode_by_halves

ReadRow = Callable[[bytes], dict[str, Any]]
"""The fields of one value; raises ValueError when it is bad."""


def decode_rows(values: pa.Array, schema: pa.Schema, read: ReadRow) -> DecodedValues:
    """Fields without a column are passed over, absent ones are null."""

    def parse(part: pa.Array) -> pa.RecordBatch:
        return _to_batch([read(value) for value in part.to_pylist()], schema)

    def defect(value: bytes) -> str | None:
        try:
            read(value)
        except ValueError as error:
            return str(error)
        return None

    return decode_by_halves(values, schema, parse, defect)


def _to_batch(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Raises ValueError when a column can't hold what a row has for it."""
    try:
        return pa.RecordBatch.from_struct_array(pa.array(rows, pa.struct(list(schema))))
    except (TypeError, OverflowError) as error:  # ArrowTypeError is a TypeError
        raise ValueError(str(error)) from error
