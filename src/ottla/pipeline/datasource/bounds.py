"""Bounds of a query's wanted rows, which limit the ranges to read.

Bounds may admit too many rows but never exclude a wanted one: the caller evaluates the whole filter as well. With a
lower bound on the timestamp a partition is read from the first record of that time or later (exact by ListOffsets, for
any order of timestamps). An upper bound only filters the records that were read, since a later record may be older.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
UNBOUNDED = (LEAST, GREATEST)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Wanted rows, by column: inclusive ranges, and sets of values; a missing column is not bounded.

    Timestamps are microseconds since 1970.
    """

    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    sets: Mapping[str, frozenset[int | str]] = field(default_factory=dict)

    def range_of(self, column: str) -> tuple[int, int]:
        """(least, greatest) allowed value of a numeric column."""
        least, greatest = self.ranges.get(column, UNBOUNDED)
        wanted = [value for value in self.sets.get(column, ()) if isinstance(value, int)]
        if column in self.sets:
            least, greatest = max(least, min(wanted, default=GREATEST)), min(greatest, max(wanted, default=LEAST))
        return least, greatest

    def admits(self, topic: str, partition: int) -> bool:
        """True if a partition can have wanted rows."""
        least, greatest = self.ranges.get("partition", UNBOUNDED)
        return (
            least <= partition <= greatest
            and partition in self.sets.get("partition", {partition})
            and topic in self.sets.get("topic", {topic})
        )

    def filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch within the timestamp bounds; the other bounds are applied to the range."""
        least, greatest = self.ranges.get("timestamp", UNBOUNDED)
        if (least, greatest) == UNBOUNDED:
            return batch
        times = batch.column("timestamp").cast(pa.int64())
        wanted = pc.and_(pc.greater_equal(times, pa.scalar(least)), pc.less_equal(times, pa.scalar(greatest)))
        return batch.filter(wanted)  # a null passes no comparison
