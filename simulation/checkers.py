"""Checkers of the guarantees to group members, during a run. A violated guarantee raises Violation at once.

One owner per partition (`Ownership`). A member claims a partition as long as the protocol lets it assume ownership:
- classic: from the response to SyncGroup until it sends JoinGroup or LeaveGroup, receives an error that it is out
  (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID), or dies;
- consumer: from the heartbeat response that assigns it until the member sends the heartbeat that no longer names it, is
  fenced, leaves or dies. A claim is a lease: a member that was silent for too long loses its protection, and can't know
  exactly when the coordinator's timers began. So a claim ends at the earliest time at which they may expire; the limits
  are documented where claims are created (`members_classic`, `members_consumer`). Two simultaneous claims are a
  violation.

Committed offsets (`Offsets`). Members of these workloads commit the records that they read since the last commit. So a
committed offset that decreases means that a commit was lost, or that a member without the partition was accepted:
- an offset is certain once its commit was acknowledged or a fetch returned it;
- a fetched offset is not below the certain one at the time of the request, and a member has sent it;
- no commit below the certain offset at the time of the request is acknowledged.

Deliveries (`Deliveries`): the group as a whole reads each partition from its beginning without a gap, so that no unread
record is committed.
"""

from __future__ import annotations

from typing import NamedTuple

from simulation.loop import SimLoop
from simulation.trace import Trace

NOTHING_COMMITTED = -1


class Violation(Exception):
    """A guarantee was violated."""


class Ownership:
    """The claims of one group: owner and end of the claim for each partition."""

    def __init__(self, loop: SimLoop, trace: Trace) -> None:
        self._loop = loop
        self._trace = trace
        self._claims: dict[int, dict[str, float]] = {}
        self.taken = 0
        """Number of claims so far, without renewals."""

    def claim(self, member: str, partition: int, until_s: float) -> None:
        """`member` owns `partition` until `until_s`, unless the claim is renewed."""
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
        """All claims of `member` end by then, unless a later claim renews them."""
        for claims in self._claims.values():
            if member in claims:
                claims[member] = min(claims[member], until_s)

    def release(self, member: str, partition: int) -> None:
        """`member` no longer uses `partition`; allowed if it did not own it."""
        if self._claims.get(partition, {}).pop(member, None) is not None:
            self._trace.note(member, f"gives up {partition}")

    def owner(self, partition: int) -> str | None:
        """The current owner."""
        now = self._loop.time()
        return next((member for member, until_s in self._claims.get(partition, {}).items() if until_s > now), None)


class Commit(NamedTuple):
    """A commit on its way to the coordinator."""

    member: str
    partition: int
    offset: int
    certain_before: int
    """The highest offset known to be committed when this was sent."""


class Offsets:
    """Committed offsets of the partitions of one group."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._certain: dict[int, int] = {}
        self._sent: dict[int, set[int]] = {}
        self.acknowledged_count = 0

    def certain(self, partition: int) -> int:
        """The highest offset that any member knows to be committed; -1 for none."""
        return self._certain.get(partition, NOTHING_COMMITTED)

    def sent(self, member: str, partition: int, offset: int) -> Commit:
        """A member sends a commit."""
        self._sent.setdefault(partition, set()).add(offset)
        return Commit(member, partition, offset, self.certain(partition))

    def accepted(self, commit: Commit) -> None:
        """The member received the acknowledgement of a commit."""
        self._trace.note(commit.member, f"committed {commit.partition}@{commit.offset}")
        self.acknowledged_count += 1
        if commit.offset < commit.certain_before:
            raise Violation(
                f"{commit.member} committed {commit.offset} for partition {commit.partition}, where "
                f"{commit.certain_before} was certain before it asked"
            )
        self._certain[commit.partition] = max(commit.offset, self.certain(commit.partition))

    def fetched(self, client: str, partition: int, offset: int, certain_before: int) -> None:
        """`client` fetched `offset` (-1 for none); `certain_before` was certain at the time of its request."""
        if offset < certain_before:
            raise Violation(
                f"{client} fetched offset {offset} of partition {partition}, where {certain_before} was "
                "certain: a commit is lost, or a member without the partition committed"
            )
        if offset != NOTHING_COMMITTED and offset not in self._sent.get(partition, ()):
            raise Violation(f"{client} fetched offset {offset} of partition {partition}, which no member committed")
        self._certain[partition] = max(offset, self.certain(partition))


class Deliveries:
    """The offsets up to which all members of a group together have read."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}

    def end(self, partition: int) -> int:
        """Every record below this offset was read by some member."""
        return self._ends.get(partition, 0)

    def delivered(self, member: str, partition: int, offset: int) -> None:
        """`member` read a record."""
        end = self.end(partition)
        if offset > end:
            raise Violation(f"{member} continued at {partition}@{offset}, but the group has only read up to {end}")
        if offset == end:
            self._ends[partition] = end + 1
