"""Runs of offsets with one state: the in-flight records of a share partition.

The list covers a range of offsets without holes. A run is split only where a state changes within it, and equal
neighbours are merged again, so that a partition whose records are acknowledged in batches has few runs.
"""

from __future__ import annotations

from bisect import bisect_right

from ottla.common.kafka.share_state import RecordState

TERMINAL = frozenset((RecordState.ACKNOWLEDGED, RecordState.ARCHIVED))
NO_MEMBER = ""


class OffsetRun:
    """Consecutive offsets in one state. `last` is inclusive."""

    __slots__ = (
        "delivery_count",
        "dirty",
        "first",
        "last",
        "member_id",
        "pending",
        "rejected",
        "state",
        "until_ms",
        "writing",
    )

    def __init__(self, first: int, last: int, state: RecordState, delivery_count: int) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = NO_MEMBER
        self.until_ms = 0
        """End of the lock of acquired records. Available ones are not delivered before it; 0: they may be."""
        self.pending: RecordState | None = None
        """State after an acknowledgement that is not stored yet; until then the records stay acquired."""
        self.rejected = False
        """Whether a member rejected the records, and they wait for dead letters or will."""
        self.dirty = False
        """Whether the state is in force and not stored. Of acquired records: the state before their acquisition."""
        self.writing = False
        """Whether the write in progress contains the state."""

    def __repr__(self) -> str:
        return f"OffsetRun({self.first}-{self.last} {self.state.name} x{self.delivery_count} {self.member_id})"

    @property
    def count(self) -> int:
        """Number of offsets."""
        return self.last - self.first + 1

    @property
    def next_state(self) -> RecordState:
        """The state once everything pending is stored."""
        return self.state if self.pending is None else self.pending

    @property
    def to_store(self) -> tuple[RecordState, int]:
        """State and delivery count to store. Records that were acquired before that are still available there."""
        if self.state is RecordState.ACQUIRED and self.pending is None:
            return RecordState.AVAILABLE, self.delivery_count - 1
        return self.next_state, self.delivery_count

    @property
    def is_settled(self) -> bool:
        """Whether the records are not delivered any more, and nothing about them is pending."""
        return self.state in TERMINAL and self.pending is None

    def split(self, offset: int) -> OffsetRun:
        """Shorten this run to the offsets before `offset`, and return a run of the others."""
        rest = OffsetRun(offset, self.last, self.state, self.delivery_count)
        rest.member_id = self.member_id
        rest.until_ms = self.until_ms
        rest.pending = self.pending
        rest.rejected = self.rejected
        rest.dirty = self.dirty
        rest.writing = self.writing
        self.last = offset - 1
        return rest

    def continues(self, other: OffsetRun) -> bool:
        """Return whether `other`, the run before this one, differs in its offsets only."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.until_ms == other.until_ms
            and self.pending is other.pending
            and self.rejected == other.rejected
            and self.dirty == other.dirty
            and self.writing == other.writing
        )


def _first(run: OffsetRun) -> int:
    return run.first


class RunList:
    """Runs that follow each other without holes, from `start` to before `end`."""

    __slots__ = ("end", "runs", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.runs: list[OffsetRun] = []

    def index_of(self, offset: int) -> int:
        """Return the index of the run that contains `offset`, which is within the list."""
        return bisect_right(self.runs, offset, key=_first) - 1

    def cut(self, offset: int) -> int:
        """Return the index of the run that begins at `offset`, split off where necessary; the length for the end."""
        if offset >= self.end:
            return len(self.runs)
        index = self.index_of(offset)
        run = self.runs[index]
        if run.first == offset:
            return index
        self.runs.insert(index + 1, run.split(offset))
        return index + 1

    def overlapping(self, first: int, last: int) -> list[OffsetRun]:
        """Return the runs with offsets in a range, whole ones."""
        first, last = max(first, self.start), min(last, self.end - 1)
        if first > last:
            return []
        return self.runs[self.index_of(first) : self.index_of(last) + 1]

    def isolated(self, first: int, last: int) -> list[OffsetRun]:
        """Return runs that cover a range within the list exactly."""
        low = self.cut(first)
        return self.runs[low : self.cut(last + 1)]

    def append(self, last: int, state: RecordState, delivery_count: int) -> OffsetRun:
        """Append a run from the end to `last`, and return it."""
        run = OffsetRun(self.end, last, state, delivery_count)
        self.runs.append(run)
        self.end = last + 1
        return run

    def merge(self, first: int, last: int) -> None:
        """Merge equal neighbours among the runs in and beside a range."""
        if not self.runs:
            return
        low = max(0, self.index_of(max(first, self.start)) - 1)
        high = min(len(self.runs), self.index_of(min(last, self.end - 1)) + 2)
        merged: list[OffsetRun] = []
        for run in self.runs[low:high]:
            if merged and run.continues(merged[-1]):
                merged[-1].last = run.last
            else:
                merged.append(run)
        self.runs[low:high] = merged

    def advance(self, offset: int) -> None:
        """Drop everything below `offset`."""
        if offset <= self.start:
            return
        del self.runs[: self.cut(offset)]
        self.start = offset
        self.end = max(self.end, offset)
