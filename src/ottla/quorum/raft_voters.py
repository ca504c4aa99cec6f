"""The voter sets of the log, at every offset that may still be truncated.

If no record names voters, those of the configuration apply (`controller.quorum.voters`, kraft.version 0): they have no
directory ids, so replicas are identified by node id alone.

Invariant: the newest set in the log applies, committed or not (KIP-853), so a truncation restores the previous one.
"""

from __future__ import annotations

from ottla.quorum.raft_types import ReplicaKey, Voter

BOOTSTRAP_OFFSET = -1
"""Offset of a set without a record in the log: it is in the snapshot that formatting wrote."""


class VoterSets:
    """Sets of voters by the offset of their record, oldest first."""

    __slots__ = ("_configured", "_sets")

    def __init__(self, configured: tuple[Voter, ...] = ()) -> None:
        """`configured` have no directory ids."""
        self._configured = configured
        self._sets: list[tuple[int, tuple[Voter, ...]]] = []

    @property
    def latest(self) -> tuple[Voter, ...]:
        """The newest set; empty if none is known."""
        return self._sets[-1][1] if self._sets else self._configured

    @property
    def recorded(self) -> tuple[Voter, ...]:
        """The newest set; empty if the configuration names the voters."""
        return self._sets[-1][1] if self._sets else ()

    @property
    def are_configured(self) -> bool:
        """Whether the configuration names the voters, so that they can't be changed."""
        return not self._sets and bool(self._configured)

    def key_of(self, replica: ReplicaKey) -> ReplicaKey:
        """The key of `replica` among the voters: without its directory if voters have none."""
        return ReplicaKey(replica.node_id) if self.are_configured else replica

    def find(self, replica: ReplicaKey) -> Voter | None:
        """The replica in the newest set that names it; None if none does."""
        sets = [*(voters for _, voters in reversed(self._sets)), self._configured]
        return next((voter for voters in sets for voter in voters if voter.key == replica), None)

    @property
    def latest_offset(self) -> int:
        return self._sets[-1][0] if self._sets else BOOTSTRAP_OFFSET

    def add(self, offset: int, voters: tuple[Voter, ...]) -> None:
        """Add the voters of a record at `offset`, above all others."""
        self._sets.append((offset, voters))

    def before(self, end_offset: int) -> tuple[Voter, ...]:
        """The voters of the log up to `end_offset`."""
        for offset, voters in reversed(self._sets):
            if offset < end_offset:
                return voters
        return ()  # configured voters are not stored

    def truncate_to(self, end_offset: int) -> None:
        """The log was truncated to `end_offset`."""
        while self._sets and self._sets[-1][0] >= max(end_offset, 0):
            self._sets.pop()

    def in_force(self, high_watermark: int) -> list[tuple[Voter, ...]]:
        """The newest committed set and those after it: each of them may become the committed one."""
        sets: list[tuple[Voter, ...]] = []
        for offset, voters in reversed(self._sets):
            sets.append(voters)
            if offset < high_watermark:
                return sets
        return sets or [self._configured]

    def reset(self, offset: int, voters: tuple[Voter, ...]) -> None:
        """A snapshot replaced the log; `offset` is that of its last record."""
        self._sets = [(offset, voters)] if voters else []
