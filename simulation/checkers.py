"""What is promised to the members of a group, checked while it happens. A broken promise raises Violation at once.

One owner a partition (`Ownership`). A member claims a partition as long as the protocol lets it believe in it:
- classic: from the response to SyncGroup until it sends JoinGroup or LeaveGroup, is told that it is out
  (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID), or dies;
- consumer: from the heartbeat response that assigns it until the member sends the heartbeat that no longer names it, is
  fenced, leaves or dies.
A claim is a lease: nobody is protected who was silent for too long, and the member can't know exactly when the
coordinator's timers began. So a claim ends at the earliest moment at which they may run out; whoever asks finds the
bounds where it is made (`members_classic`, `members_consumer`). Two claims at a time are a violation.

Committed offsets (`Offsets`). Members of these workloads commit what they read since the last commit, so a committed
offset that goes back means that a commit was lost, or that somebody who no longer owns the partition was let in:
- an offset is certain once its commit was acknowledged or a fetch returned it;
- what a fetch returns is not below what was certain before it was sent, and somebody has sent it;
- no commit is acknowledged that is below what was certain before it was sent.

Deliveries (`Deliveries`): the group as a whole reads each partition from its beginning without a gap, so that nothing
is committed that no member has read.
"""

from __future__ import annotations

from typing import NamedTuple

from simulation.loop import SimLoop
from simulation.trace import Trace

NOTHING_COMMITTED = -1


class Violation(Exception):
    """A promise was broken."""


class Ownership:
    """Who claims which partition of one group until when."""

    def __init__(self, loop: SimLoop, trace: Trace) -> None:
        self._loop = loop
        self._trace = trace
        self._claims: dict[int, dict[str, float]] = {}
        self.taken = 0
        """Claims so far, prolonged ones not counted."""

    def claim(self, member: str, partition: int, until_s: float) -> None:
        """`member` owns `partition`, until `until_s` if nothing prolongs it."""
        claims = self._claims.setdefault(partition, {})
        now = self._loop.time()
        if member not in claims:
            self.taken += 1
            self._trace.note(member, f"takes {partition} until {until_s:.3f}")
        claims[member] = until_s
        if until_s <= now:
            return
        for other, other_until_s in claims.items():
            if other != member and other_until_s > now:
                raise Violation(
                    f"partition {partition} is owned by {other} (until {other_until_s:.3f}) and by {member}"
                )

    def shorten(self, member: str, until_s: float) -> None:
        """Nothing of `member` is its own for longer than that, unless a later claim prolongs it."""
        for claims in self._claims.values():
            if member in claims:
                claims[member] = min(claims[member], until_s)

    def release(self, member: str, partition: int) -> None:
        """`member` no longer touches `partition`; fine when it didn't have it."""
        if self._claims.get(partition, {}).pop(member, None) is not None:
            self._trace.note(member, f"gives up {partition}")

    def owner(self, partition: int) -> str | None:
        """Who owns it now."""
        now = self._loop.time()
        return next((member for member, until_s in self._claims.get(partition, {}).items() if until_s > now), None)


class Commit(NamedTuple):
    """An offset on its way to the coordinator."""

    member: str
    partition: int
    offset: int
    certain_before: int
    """The highest offset that anybody knew to be committed when this was sent."""


class Offsets:
    """What was committed for the partitions of one group."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._certain: dict[int, int] = {}
        self._sent: dict[int, set[int]] = {}
        self.acknowledged_count = 0

    def certain(self, partition: int) -> int:
        """The highest offset that anybody was told is committed; -1 for none."""
        return self._certain.get(partition, NOTHING_COMMITTED)

    def sent(self, member: str, partition: int, offset: int) -> Commit:
        """A commit leaves its member."""
        self._sent.setdefault(partition, set()).add(offset)
        return Commit(member, partition, offset, self.certain(partition))

    def accepted(self, commit: Commit) -> None:
        """Its member was told that it is committed."""
        self._trace.note(commit.member, f"committed {commit.partition}@{commit.offset}")
        self.acknowledged_count += 1
        if commit.offset < commit.certain_before:
            raise Violation(
                f"{commit.member} committed {commit.offset} for partition {commit.partition}, where "
                f"{commit.certain_before} was certain before it asked"
            )
        self._certain[commit.partition] = max(commit.offset, self.certain(commit.partition))

    def fetched(self, who: str, partition: int, offset: int, certain_before: int) -> None:
        """`who` was told that `offset` is committed (-1 for nothing), having asked when the other was certain."""
        if offset < certain_before:
            raise Violation(
                f"{who} fetched offset {offset} of partition {partition}, where {certain_before} was "
                "certain: a commit is lost, or somebody committed who does not own the partition"
            )
        if offset != NOTHING_COMMITTED and offset not in self._sent.get(partition, ()):
            raise Violation(f"{who} fetched offset {offset} of partition {partition}, which nobody committed")
        self._certain[partition] = max(offset, self.certain(partition))


class Deliveries:
    """How far the members of a group have read together."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}

    def end(self, partition: int) -> int:
        """Every record below this offset was read by some member."""
        return self._ends.get(partition, 0)

    def delivered(self, who: str, partition: int, offset: int) -> None:
        """`who` read a record."""
        end = self.end(partition)
        if offset > end:
            raise Violation(f"{who} went on at {partition}@{offset}, though the group has read up to {end} only")
        if offset == end:
            self._ends[partition] = end + 1
