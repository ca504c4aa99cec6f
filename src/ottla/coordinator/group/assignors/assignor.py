"""What a server-side assignor of the consumer protocol gets and gives (KIP-848).

An assignor is a pure function from subscriptions, partition counts, racks and the last target assignment to the next
target assignment. It owns no state, so the same input gives the same output on every broker.

Invariants: every partition of a subscribed topic has exactly one owner, who is subscribed to the topic; nothing
depends on hash order. Left out: who owns a partition right now, which is the business of `reconciliation`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.common.kafka.ids import Uuid

Assignment = Mapping[Uuid, frozenset[int]]
"""Partitions by topic id; a topic without partitions is absent."""

EMPTY_ASSIGNMENT: Assignment = {}


class MemberSpec(NamedTuple):
    """One member as an assignor sees it; `topic_ids` holds existing topics only."""

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


Assignor = Callable[[Sequence[MemberSpec], Mapping[Uuid, TopicSpec]], dict[str, Assignment]]
"""Returns one entry for each member, empty ones included."""


def member_order(member: MemberSpec) -> tuple[int, str]:
    """Static members first, by instance id: a restarted one keeps its place whatever its new member id is."""
    if member.instance_id is not None:
        return (0, member.instance_id)
    return (1, member.member_id)


def racks_matter(members: Iterable[MemberSpec], topics: Iterable[TopicSpec]) -> bool:
    """Whether placing by rack can make a difference at all."""
    member_racks = {member.rack_id for member in members if member.rack_id is not None}
    if not member_racks:
        return False
    return any(not racks.issuperset(member_racks) for topic in topics for racks in topic.racks or ())


class Vacancies:
    """Members that still lack partitions, and the dealing out of free ones.

    `prefers(partition)` of `deal` names the members that sit in a rack of the partition; they go first, the one that
    lacks most before the others, and who is left takes turns. So one member gets no whole topic when two share it.
    """

    __slots__ = ("_missing",)

    def __init__(self) -> None:
        self._missing: dict[int, int] = {}

    def add(self, member: int, count: int) -> None:
        """`member` lacks `count` partitions."""
        if count > 0:
            self._missing[member] = count

    def deal(
        self,
        free: Sequence[tuple[Uuid, int]],
        give: Callable[[int, Uuid, int], None],
        prefers: Callable[[Uuid, int], Sequence[int]] | None = None,
    ) -> None:
        """Hand every free partition to a member that lacks one."""
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
    """The assignment with topics in order; a topic that stayed as it was keeps its old set, so equality is cheap."""
    frozen: dict[Uuid, frozenset[int]] = {}
    for topic_id in sorted(assigned):
        partitions = frozenset(assigned[topic_id])
        if partitions:
            before = previous.get(topic_id)
            frozen[topic_id] = before if before == partitions else partitions
    return frozen
