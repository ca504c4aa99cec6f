"""Report of a search: how much was read, how much was ruled out, and whether the result is complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.search.scan import Unreadable

END = "end"
LIMIT = "limit"
RECORDS = "records"
BYTES = "bytes"
TIME = "time"
MEMORY = "memory"
INTERRUPTED = "interrupted"
CANCELLED = "cancelled"
FAILED = "failed"

_STOPPED = {
    LIMIT: "stopped at the limit",
    RECORDS: "stopped at the budget of records",
    BYTES: "stopped at the budget of bytes",
    TIME: "stopped at the time budget",
    MEMORY: "stopped at the memory bound of unsorted matches",
    INTERRUPTED: "was interrupted",
    CANCELLED: "was cancelled",
    FAILED: "ended with an error",
}
MAX_LISTED = 3
"""Places and descriptions in the sentence; the others are counted."""


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a search up to now.

    `records` were searched, `skipped` of them ruled out without decoding: by a literal of the filter, or by a key
    filter of the broker. `verified` records were compared with the filter; `mismatches` and `undecodable` count among
    these, `undecodable_reason` is that of the first one. `lost` offsets were deleted from the log before they were
    read. `ranges` are the searched offsets by partition, end exclusive.
    """

    matches: int
    records: int
    skipped: int
    verified: int
    bytes: int
    undecodable: int
    undecodable_reason: str | None
    mismatches: Mapping[str, int]
    unreadable: tuple[Unreadable, ...]
    lost: int
    ranges: Mapping[int, tuple[int, int]]
    reason: str
    resume: str | None

    @property
    def complete(self) -> bool:
        """True if the matches are all matches in the ranges."""
        return self.reason == END and not self.unreadable and not self.lost

    def sentence(self) -> str:
        """The last line of the command."""
        ending = " to the end" if self.reason == END else f" and {_STOPPED[self.reason]}"
        parts = [
            f"searched {_counted(self.records, 'record')} in {_counted(len(self.ranges), 'partition')}{ending}",
            _counted(self.matches, "match", "matches"),
        ]
        if self.undecodable:
            reason = "" if self.undecodable_reason is None else f" (the first is {self.undecodable_reason})"
            parts.append(f"{_counted(self.undecodable, 'record')} could not be decoded{reason}")
        parts += _listed([f"{text}: {_counted(count, 'time')}" for text, count in self.mismatches.items()])
        parts += _listed([
            f"offsets {each.start} to {each.end - 1} of partition {each.partition} could not be read: {each.reason}"
            for each in self.unreadable
        ])  # fmt: skip
        if self.lost:
            parts.append(f"{_counted(self.lost, 'offset')} disappeared from the log before the search read them")
        return "; ".join(parts)

    def as_json(self) -> dict[str, object]:
        """Fields for a machine."""
        return {
            "matches": self.matches,
            "records_searched": self.records,
            "records_skipped": self.skipped,
            "records_verified": self.verified,
            "bytes_read": self.bytes,
            "records_undecodable": self.undecodable,
            "undecodable_reason": self.undecodable_reason,
            "type_mismatches": dict(self.mismatches),
            "unreadable": [each._asdict() for each in self.unreadable],
            "offsets_lost": self.lost,
            "ranges": {str(partition): {"start": start, "end": end} for partition, (start, end) in self.ranges.items()},
            "complete": self.complete,
            "reason": self.reason,
            "resume": self.resume,
        }


def _listed(texts: list[str]) -> list[str]:
    more = len(texts) - MAX_LISTED
    return texts[:MAX_LISTED] + ([f"and {more} more"] if more > 0 else [])


def _counted(count: int, noun: str, plural: str | None = None) -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
