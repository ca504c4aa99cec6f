"""The voters as the log says them, at every place of the log that may still be cut.

Invariant: the newest set in the log counts, committed or not (KIP-853), so a truncation brings the one before it back.
"""

from __future__ import annotations

from ottla.quorum.raft_types import Voter

BOOTSTRAP_OFFSET = -1
"""Of a set that stands in no record of the log: the snapshot that formatting wrote."""


class VoterSets:
    """Sets of voters by the offset of their record, oldest first."""

    __slots__ = ("_sets",)

    def __init__(self) -> None:
        self._sets: list[tuple[int, tuple[Voter, ...]]] = []

    @property
    def latest(self) -> tuple[Voter, ...]:
        """Empty while none is known."""
        return self._sets[-1][1] if self._sets else ()

    @property
    def latest_offset(self) -> int:
        return self._sets[-1][0] if self._sets else BOOTSTRAP_OFFSET

    def add(self, offset: int, voters: tuple[Voter, ...]) -> None:
        """A record at `offset`, above all others, names these voters."""
        self._sets.append((offset, voters))

    def before(self, end_offset: int) -> tuple[Voter, ...]:
        """The set of the log that ends at `end_offset`."""
        for offset, voters in reversed(self._sets):
            if offset < end_offset:
                return voters
        return ()

    def truncate_to(self, end_offset: int) -> None:
        """The log ends at `end_offset` now."""
        while self._sets and self._sets[-1][0] >= max(end_offset, 0):
            self._sets.pop()

    def in_force(self, high_watermark: int) -> list[tuple[Voter, ...]]:
        """The newest committed set and those after it: any of them may turn out to count."""
        sets: list[tuple[Voter, ...]] = []
        for offset, voters in reversed(self._sets):
            sets.append(voters)
            if offset < high_watermark:
                break
        return sets

    def reset(self, offset: int, voters: tuple[Voter, ...]) -> None:
        """A snapshot replaced the log; `offset` is that of its last record."""
        self._sets = [(offset, voters)] if voters else []
