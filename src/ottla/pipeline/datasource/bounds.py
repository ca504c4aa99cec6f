"""What rows of topics a query wants, as far as that bounds what is read of them.

A bound may let too much pass and never too little: whoever asks evaluates the whole filter as well. Where the timestamp
is bounded from below, a partition is read from the first record on that is as late (ListOffsets tells it exactly,
whatever the order of timestamps); from above it is only tested in what was read, since a later record may be older.
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
    """What rows are wanted, by column: inclusive ranges, and sets of values; a column without is not bounded.

    Timestamps are microseconds since 1970.
    """

    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    sets: Mapping[str, frozenset[int | str]] = field(default_factory=dict)

    def range_of(self, column: str) -> tuple[int, int]:
        """(least, greatest) that a number can be."""
        least, greatest = self.ranges.get(column, UNBOUNDED)
        wanted = [value for value in self.sets.get(column, ()) if isinstance(value, int)]
        if column in self.sets:
            least, greatest = max(least, min(wanted, default=GREATEST)), min(greatest, max(wanted, default=LEAST))
        return least, greatest

    def admits(self, topic: str, partition: int) -> bool:
        """Whether a partition can have wanted rows."""
        least, greatest = self.ranges.get("partition", UNBOUNDED)
        return (
            least <= partition <= greatest
            and partition in self.sets.get("partition", {partition})
            and topic in self.sets.get("topic", {topic})
        )

    def filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that are wanted by their timestamp; the range that is read was cut by the rest."""
        least, greatest = self.ranges.get("timestamp", UNBOUNDED)
        if (least, greatest) == UNBOUNDED:
            return batch
        times = batch.column("timestamp").cast(pa.int64())
        wanted = pc.and_(pc.greater_equal(times, pa.scalar(least)), pc.less_equal(times, pa.scalar(greatest)))
        return batch.filter(wanted)  # a null is wanted by no comparison
