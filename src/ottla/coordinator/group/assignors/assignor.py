"""Interface and shared helpers of the consumer protocol's server-side assignors (KIP-848).

An assignor is a pure function from subscriptions, partition counts, racks and the last target assignment to the next
target assignment. It has no state, so the same input gives the same output on every broker.

Invariants: every partition of a subscribed topic has exactly one owner, and that owner subscribes to the topic; nothing
depends on hash order. Left out: current partition ownership, which `reconciliation` handles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.common.kafka.ids import Uuid

Assignment = Mapping[Uuid, frozenset[int]]
"""Partitions by topic id; a topic without partitions is absent."""

EMPTY_ASSIGNMENT: Assignment = {}


class MemberSpec(NamedTuple):
    """One member as input of an assignor; `topic_ids` contains existing topics only."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    topic_ids: frozenset[Uuid]
    assigned: Assignment


class TopicSpec(NamedTuple):
    """One topic; `racks[p]` are the racks with a replica of partition p, None when no broker has a rack."""

    topic_id: Uuid
    partition_count: int
    racks: Sequence[frozenset[str]] | None


class Assignor(Protocol):
    """Assigns the partitions of the topics of a group to its members.

    Implementations: `coordinator.group.assignors.range.assign_range` and
    `coordinator.group.assignors.uniform.assign_uniform`, by name in
    `coordinator.group.modern.consumer.target_assignment.ASSIGNORS`.
    """

    def __call__(self, members: Sequence[MemberSpec], topics: Mapping[Uuid, TopicSpec], /) -> dict[str, Assignment]:
        """Return one entry for each member, empty ones included."""


def member_order(member: MemberSpec) -> tuple[int, str]:
    """Sort key: static members first, by instance id, so that a restarted one has the same position under a new member
    id."""
    if member.instance_id is not None:
        return (0, member.instance_id)
    return (1, member.member_id)


def racks_matter(members: Iterable[MemberSpec], topics: Iterable[TopicSpec]) -> bool:
    """Return whether rack-aware placement can change the result."""
    member_racks = {member.rack_id for member in members if member.rack_id is not None}
    if not member_racks:
        return False
    return any(not racks.issuperset(member_racks) for topic in topics for racks in topic.racks or ())


class Vacancies:
    """Members that lack partitions, and the distribution of free partitions to them.

    `prefers(partition)` of `deal` returns the members in a rack of the partition. They are served first, the one that
    lacks most before the others; the remaining partitions are distributed round-robin. So when two members share a
    topic, one of them does not get all of it.
    """

    __slots__ = ("_missing",)

    def __init__(self) -> None:
        self._missing: dict[int, int] = {}

    def add(self, member: int, count: int) -> None:
        """Register that `member` lacks `count` partitions."""
        if count > 0:
            self._missing[member] = count

    def deal(
        self,
        free: Sequence[tuple[Uuid, int]],
        give: Callable[[int, Uuid, int], None],
        prefers: Callable[[Uuid, int], Sequence[int]] | None = None,
    ) -> None:
        """Assign every free partition to a member that lacks one."""
        rest: Sequence[tuple[Uuid, int]] = free
        if prefers is not None:
            rest = self._deal_by_rack(free, give, prefers)
        queue = deque(self._missing.items())
        for topic_id, partition in rest:
            member, missing = queue.popleft()
            give(member, topic_id, partition)
            if missing > 1:
                queue.append((member, missing - 1))
        self._missing = dict(queue)

    def _deal_by_rack(
        self,
        free: Sequence[tuple[Uuid, int]],
        give: Callable[[int, Uuid, int], None],
        prefers: Callable[[Uuid, int], Sequence[int]],
    ) -> list[tuple[Uuid, int]]:
        missing = self._missing
        rest = []
        for topic_id, partition in free:
            best = max(
                (member for member in prefers(topic_id, partition) if member in missing),
                key=lambda member: (missing[member], -member),
                default=None,
            )
            if best is None:
                rest.append((topic_id, partition))
                continue
            give(best, topic_id, partition)
            missing[best] -= 1
            if not missing[best]:
                del missing[best]
        return rest


def freeze_assignment(assigned: Mapping[Uuid, Iterable[int]], previous: Assignment) -> Assignment:
    """Return the assignment with sorted topics; unchanged topics reuse their previous sets (cheap equality)."""
    frozen: dict[Uuid, frozenset[int]] = {}
    for topic_id in sorted(assigned):
        partitions = frozenset(assigned[topic_id])
        if partitions:
            before = previous.get(topic_id)
            frozen[topic_id] = before if before == partitions else partitions
    return frozen
