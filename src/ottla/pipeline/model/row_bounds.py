"""Bounds on rows by their own offsets or times, in any order of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from ottla.common.errors import OperatorError


@dataclass(frozen=True, slots=True)
class RowBounds:
    """Rows from `low` up to `high` in a column `offset`, or `timestamp` in milliseconds; None: no bound."""

    column: Literal["offset", "timestamp"]
    low: int | None
    high: int | None

    def column_in(self, schema: pa.Schema, subject: str) -> str:
        """The column of such rows that is meant; dead letters have their times as stored. Raises OperatorError."""
        for name in (self.column, f"{self.column}_ms"):
            if name in schema.names:
                return name
        raise OperatorError(f"{subject} has no column `{self.column}` by which rows could be chosen")

    def within(self, batch: pa.RecordBatch, subject: str) -> pa.RecordBatch:
        """The rows within; one without a value is in no range. Raises OperatorError."""
        column = batch.column(self.column_in(batch.schema, subject))
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", tz="UTC"), safe=False)
        numbers = column.cast(pa.int64())
        for compare, bound in ((pc.greater_equal, self.low), (pc.less, self.high)):
            if bound is not None:
                chosen = compare(numbers, bound)
                batch, numbers = batch.filter(chosen), numbers.filter(chosen)
        return batch
