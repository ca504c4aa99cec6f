"""The assignor `simple` of share groups: every partition has members, and members have equal shares (KIP-932).

Several members may get the same partition. With equal subscriptions all partitions form one pool; otherwise each topic
is a pool of its own, shared by its subscribers. For a pool of m partitions and n members:

- Each partition gets ceil(n / m) members.
- The assignments of a pool are divided evenly: with x of them per member, the members get ceil(x * (i + 1)) -
  ceil(x * i) partitions, which sums up exactly. Members that had most get the larger shares.
- A member retains its previous partitions as far as both numbers permit.

Invariants: no member gets a partition twice; the same input gives the same output. Left out: racks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from itertools import pairwise

from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.assignors.assignor import Assignment, MemberSpec, freeze_assignment

SIMPLE = "simple"

_Place = tuple[Uuid, int]


def assign_simple(members: Sequence[MemberSpec], partitions: Mapping[Uuid, Sequence[int]]) -> dict[str, Assignment]:
    """Return one entry for each member, empty ones included; `partitions` are the assignable ones by topic."""
    ordered = sorted(members, key=lambda member: member.member_id)
    assigned: list[dict[Uuid, list[int]]] = [defaultdict(list) for _ in ordered]
    if ordered and all(member.topic_ids == ordered[0].topic_ids for member in ordered):
        places = [(topic, partition) for topic in sorted(ordered[0].topic_ids) for partition in partitions[topic]]
        _divide(ordered, range(len(ordered)), places, assigned)
    else:
        for topic in sorted(partitions):
            subscribers = [index for index, member in enumerate(ordered) if topic in member.topic_ids]
            _divide(ordered, subscribers, [(topic, partition) for partition in partitions[topic]], assigned)
    return {
        member.member_id: freeze_assignment(assigned[index], member.assigned) for index, member in enumerate(ordered)
    }


def pool_shares(member_count: int, partition_count: int) -> list[int]:
    """Return the numbers of partitions that the members of a pool get, in integers and without rounding errors."""
    total = partition_count * -(-member_count // partition_count)
    ends = [-(-total * index // member_count) for index in range(member_count + 1)]
    return [end - start for start, end in pairwise(ends)]


def _divide(
    members: Sequence[MemberSpec],
    subscribers: Sequence[int],
    places: Sequence[_Place],
    assigned: Sequence[dict[Uuid, list[int]]],
) -> None:
    """Divide one pool among `subscribers` (indexes into `members`), and add the result to `assigned`."""
    if not subscribers or not places:
        return
    pool = _Pool(subscribers, places)
    in_pool = frozenset(places)
    had = {
        index: sorted(
            place
            for topic in members[index].topic_ids & members[index].assigned.keys()
            for place in ((topic, partition) for partition in members[index].assigned[topic])
            if place in in_pool
        )
        for index in subscribers
    }
    shares = sorted(pool_shares(len(subscribers), len(places)), reverse=True)
    richest = sorted(subscribers, key=lambda index: (-len(had[index]), sum(map(len, assigned[index].values())), index))
    pool.quota = dict(zip(richest, shares, strict=True))
    for index in subscribers:
        for place in had[index]:
            pool.retain(index, place)
    pool.fill()
    for index in subscribers:
        for topic, partition in pool.taken[index]:
            assigned[index][topic].append(partition)


class _Pool:
    """Partitions that are divided among members; members are indexes."""

    __slots__ = ("_places", "_sharing", "holders", "quota", "taken")

    def __init__(self, members: Sequence[int], places: Sequence[_Place]) -> None:
        self._places = places
        self._sharing = -(-len(members) // len(places))
        self.quota: dict[int, int] = {}
        self.holders: dict[_Place, int] = dict.fromkeys(places, 0)
        self.taken: dict[int, set[_Place]] = {member: set() for member in members}

    def retain(self, member: int, place: _Place) -> None:
        """Leave a previous partition with its member, within the share of the member and of the partition."""
        if len(self.taken[member]) < self.quota[member] and self.holders[place] < self._sharing:
            self._give(member, place)

    def fill(self) -> None:
        """Give each partition as many members as it lacks."""
        lacking = deque(member for member in self.quota if len(self.taken[member]) < self.quota[member])
        for place in self._places:
            for _ in range(self._sharing - self.holders[place]):
                member = self._next(lacking, place)
                if member is None:
                    self._exchange(lacking[0], place)
                    member = lacking.popleft()
                else:
                    self._give(member, place)
                if len(self.taken[member]) < self.quota[member]:
                    lacking.append(member)

    def _next(self, lacking: deque[int], place: _Place) -> int | None:
        """Remove and return the first member that lacks partitions and does not have this one."""
        for _ in range(len(lacking)):
            member = lacking.popleft()
            if place not in self.taken[member]:
                return member
            lacking.append(member)
        return None

    def _exchange(self, member: int, place: _Place) -> None:
        """Every member that lacks a partition already has `place`: another one takes it, and gives up one of its own.

        Such a member exists, because fewer than all members have `place`. It has its full share, so at least as many
        partitions as `member`, and thus one that `member` does not have.
        """
        for places in self.taken.values():
            if place in places:
                continue
            given = min(places - self.taken[member], default=None)
            if given is not None:
                places.remove(given)
                places.add(place)
                self.holders[place] += 1
                self.taken[member].add(given)
                return

    def _give(self, member: int, place: _Place) -> None:
        self.taken[member].add(place)
        self.holders[place] += 1
