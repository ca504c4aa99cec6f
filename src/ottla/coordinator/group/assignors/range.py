"""The assignor `range`: topic by topic, with the same partition numbers of similar topics on the same member.

Topics with the same subscribers and the same partition count form a group and are assigned together: the member that
gets partition 3 of one gets partition 3 of all (co-partitioning). Within a group, in this order:

- Every subscriber gets the same number of partitions or one more.
- A member retains its previous numbers, the lowest first.
- Free numbers go to members in the rack of their replicas, if such a member lacks some.
- The rest is distributed in ranges to the members in order.

Invariants: those of `assignor`; the same input gives the same output. Left out: balance between groups of topics; use
`uniform` for that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.assignors.assignor import (
    Assignment,
    MemberSpec,
    TopicSpec,
    freeze_assignment,
    member_order,
    racks_matter,
)


def assign_range(members: Sequence[MemberSpec], topics: Mapping[Uuid, TopicSpec]) -> dict[str, Assignment]:
    """An `assignor.Assignor`; see the module."""
    ordered = sorted(members, key=member_order)
    groups: dict[tuple[tuple[int, ...], int], list[TopicSpec]] = defaultdict(list)
    for topic_id in sorted(topics):
        topic = topics[topic_id]
        subscribers = tuple(index for index, member in enumerate(ordered) if topic_id in member.topic_ids)
        if subscribers:
            groups[subscribers, topic.partition_count].append(topic)
    assigned: list[dict[Uuid, list[int]]] = [{} for _ in ordered]
    for (subscribers, partition_count), alike in groups.items():
        by_rack = racks_matter((ordered[member] for member in subscribers), alike)
        for member, partitions in _share(ordered, subscribers, partition_count, alike, by_rack).items():
            for topic in alike:
                assigned[member][topic.topic_id] = partitions
    return {
        member.member_id: freeze_assignment(assigned[index], member.assigned) for index, member in enumerate(ordered)
    }


def _share(
    members: Sequence[MemberSpec],
    subscribers: Sequence[int],
    partition_count: int,
    topics: Sequence[TopicSpec],
    by_rack: bool,
) -> dict[int, list[int]]:
    """Return the partition numbers of each subscriber."""
    had = _previous(members, subscribers, partition_count, topics)
    base, extra = divmod(partition_count, len(subscribers))
    # Extra partitions go first to members that already have more, then to members in order.
    richest = sorted(subscribers, key=lambda member: (len(had[member]) <= base, member))
    quota = {member: base + (rank < extra) for rank, member in enumerate(richest)}
    share = {member: had[member][: quota[member]] for member in subscribers}
    taken = {partition for partitions in share.values() for partition in partitions}
    free = [partition for partition in range(partition_count) if partition not in taken]
    if by_rack:
        free = _share_by_rack(members, subscribers, topics, free, share, quota)
    position = 0
    for member in subscribers:
        missing = quota[member] - len(share[member])
        share[member] += free[position : position + missing]
        position += missing
    return share


def _previous(
    members: Sequence[MemberSpec], subscribers: Sequence[int], partition_count: int, topics: Sequence[TopicSpec]
) -> dict[int, list[int]]:
    """Return the numbers that each subscriber had in most of the topics, ascending."""
    votes: list[Counter[int]] = [Counter() for _ in range(partition_count)]
    for member in subscribers:
        assigned = members[member].assigned
        for topic in topics:
            for partition in assigned.get(topic.topic_id, ()):
                if partition < partition_count:
                    votes[partition][member] += 1
    had: dict[int, list[int]] = {member: [] for member in subscribers}
    for partition, counter in enumerate(votes):
        if counter:
            owner = min(counter, key=lambda member: (-counter[member], member))
            had[owner].append(partition)
    return had


def _share_by_rack(
    members: Sequence[MemberSpec],
    subscribers: Sequence[int],
    topics: Sequence[TopicSpec],
    free: Sequence[int],
    share: Mapping[int, list[int]],
    quota: Mapping[int, int],
) -> list[int]:
    """Assign free numbers to members in a rack that has replicas of that number in every topic; return the rest."""
    by_rack_id: dict[str, list[int]] = defaultdict(list)
    for member in subscribers:
        rack = members[member].rack_id
        if rack is not None:
            by_rack_id[rack].append(member)
    rest = []
    for partition in free:
        racks = frozenset.intersection(*(topic.racks[partition] if topic.racks else frozenset() for topic in topics))
        lacking = [
            member
            for rack in sorted(racks)
            for member in by_rack_id.get(rack, ())
            if len(share[member]) < quota[member]
        ]
        if lacking:
            share[min(lacking)].append(partition)
        else:
            rest.append(partition)
    return rest
