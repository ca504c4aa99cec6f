"""The voters as the log says them, at every place of the log that may still be cut.

Where no record names voters, those of the configuration count (`controller.quorum.voters`, kraft.version 0): they have
no directory ids, so replicas are told apart by their node ids alone.

Invariant: the newest set in the log counts, committed or not (KIP-853), so a truncation brings the one before it back.
"""

from __future__ import annotations

from ottla.quorum.raft_types import ReplicaKey, Voter

BOOTSTRAP_OFFSET = -1
"""Of a set that stands in no record of the log: the snapshot that formatting wrote."""


class VoterSets:
    """Sets of voters by the offset of their record, oldest first."""

    __slots__ = ("_configured", "_sets")

    def __init__(self, configured: tuple[Voter, ...] = ()) -> None:
        """`configured` have no directory ids."""
        self._configured = configured
        self._sets: list[tuple[int, tuple[Voter, ...]]] = []

    @property
    def latest(self) -> tuple[Voter, ...]:
        """Empty while none is known."""
        return self._sets[-1][1] if self._sets else self._configured

    @property
    def recorded(self) -> tuple[Voter, ...]:
        """The same, but none where it is the configuration that names them."""
        return self._sets[-1][1] if self._sets else ()

    @property
    def are_configured(self) -> bool:
        """Whether the configuration names the voters, so that they can't be changed."""
        return not self._sets and bool(self._configured)

    def key_of(self, replica: ReplicaKey) -> ReplicaKey:
        """What `replica` is known by among the voters: without its directory where they have none."""
        return ReplicaKey(replica.node_id) if self.are_configured else replica

    def find(self, replica: ReplicaKey) -> Voter | None:
        """The replica as the newest set that names it does; None when none does."""
        sets = [*(voters for _, voters in reversed(self._sets)), self._configured]
        return next((voter for voters in sets for voter in voters if voter.key == replica), None)

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
        return ()  # nothing to write down where the configuration names them

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
                return sets
        return sets or [self._configured]

    def reset(self, offset: int, voters: tuple[Voter, ...]) -> None:
        """A snapshot replaced the log; `offset` is that of its last record."""
        self._sets = [(offset, voters)] if voters else []
