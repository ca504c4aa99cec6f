"""Segments of a log, replaced as a whole, and the offsets that bound them.

Truncation, retention and rolling change `LogSegments`, each by one `replace`: it removes and adds segments at once, so
that later lookups see only the new set. A reader with a region is not affected: the region pins the file of its segment
even after the segment left the set.

Invariants:
- Segments are sorted by base offset; the last is the active one and the only one that grows.
- log_start_offset <= high_watermark <= log_end_offset if replication tracks a high watermark, and recovery_point <=
  flushed_offset <= log_end_offset. The recovery point may be below the start: deleted records are synced too, else a
  power failure could move the offsets back.
- The high watermark is stored only here; only the partition raises it, and a truncation lowers it.

Files and their names are in `segment` and `deletion`; the callers move the offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from typing import overload

from ottla.common.errors import InvariantError
from ottla.storage.segment.segment import Segment

NO_HIGH_WATERMARK = -1
"""No high watermark is tracked (yet), so that the whole log counts as committed."""


class OffsetChanges:
    """Whether start offset, high watermark or segments of any log of a data directory changed.

    An idle broker with tens of thousands of logs must not compare them every few seconds.
    """

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending = True
        """Reset when the offset checkpoints contain the current offsets."""


_UNOBSERVED = OffsetChanges()


class LogOffsets:
    """Offsets of one log; all are exclusive ends. Methods set those of the offset checkpoints, to report the change."""

    __slots__ = (
        "changes",
        "flushed_offset",
        "gap_end",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
    )

    def __init__(self, log_start_offset: int, log_end_offset: int, recovery_point: int) -> None:
        self.log_start_offset = log_start_offset
        self.high_watermark = NO_HIGH_WATERMARK
        self.log_end_offset = log_end_offset
        self.flushed_offset = recovery_point
        """Records below are durable."""
        self.recovery_point = recovery_point
        """Records below are durable with indexes and leader epochs, so that no start has to scan them."""
        self.gap_end = 0
        """Offsets may be missing before the segments up to here although the recovery point is lower."""
        self.changes = _UNOBSERVED
        """Those of the data directory."""

    @property
    def high_watermark_or_end(self) -> int:
        """The high watermark; the log end if it is not tracked."""
        return self.log_end_offset if self.high_watermark == NO_HIGH_WATERMARK else self.high_watermark

    def begin_high_watermark(self, checkpointed: int) -> None:
        """Start tracking the high watermark, from the checkpointed one, at most the log end."""
        self.set_high_watermark(min(max(checkpointed, self.log_start_offset), self.log_end_offset))

    def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark, which is tracked."""
        self.high_watermark = offset
        self.changes.pending = True

    def advance_log_start_offset(self, offset: int) -> None:
        """Raise the log start offset; records deleted on purpose count as committed."""
        self.log_start_offset = offset
        self.changes.pending = True
        if NO_HIGH_WATERMARK < self.high_watermark < offset:
            self.high_watermark = offset

    def cut(self, offset: int) -> None:
        """Lower all offsets to the log end `offset`."""
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.flushed_offset = min(self.flushed_offset, offset)
        self.gap_end = min(self.gap_end, offset)
        self.changes.pending = True

    def restart_at(self, offset: int) -> None:
        """Set all offsets to `offset`, for an empty log."""
        self.cut(offset)
        self.advance_log_start_offset(offset)


class LogSegments:
    """Segments of one log, at least one."""

    __slots__ = ("active", "base_offsets", "changes", "in_order", "recent", "with_aborted")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self.in_order = tuple(segments)
        self.base_offsets = tuple(segment.base_offset for segment in self.in_order)
        self.active = self.in_order[-1]
        self.recent: dict[int, int] = {}
        """Positions of the newest batches in the active segment, by base offset, for consumers at the tail."""
        self.with_aborted = any(segment.aborted.index is not None for segment in self.in_order)
        """Whether any segment has, or had, aborted transactions."""
        self.changes = _UNOBSERVED
        """Those of the data directory."""

    def __len__(self) -> int:
        return len(self.in_order)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.in_order)

    @overload
    def __getitem__(self, at: int) -> Segment: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Segment, ...]: ...

    def __getitem__(self, at: int | slice) -> Segment | tuple[Segment, ...]:
        return self.in_order[at]

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments' data."""
        return sum(segment.data.size_bytes for segment in self.in_order)

    def number_of(self, offset: int) -> int:
        """Return the number of the segment with `offset`, or of the first if it is before all."""
        return max(bisect_right(self.base_offsets, offset) - 1, 0)

    def holding(self, offset: int) -> tuple[Segment, ...]:
        """Return the segment with `offset`, or the first of all, and those behind it."""
        return self.in_order[self.number_of(offset) :]

    def replace(self, gone: Collection[Segment], added: Collection[Segment]) -> None:
        """Remove and add segments at once. Their files are the caller's."""
        going = frozenset(gone)  # retention may remove thousands at once
        kept = [segment for segment in self.in_order if segment not in going]
        in_order = tuple(sorted([*kept, *added], key=lambda segment: segment.base_offset))
        base_offsets = tuple(segment.base_offset for segment in in_order)
        if not in_order or len(set(base_offsets)) < len(base_offsets):
            raise InvariantError(f"{self.active.data.path}: segments at {base_offsets} do not form a log")
        self.in_order, self.base_offsets = in_order, base_offsets
        self.changes.pending = True
        if in_order[-1] is not self.active:
            self.active = in_order[-1]
            self.recent.clear()
