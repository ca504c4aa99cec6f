"""The assignor `uniform`: members get equal partition counts, as far as subscriptions allow.

Priorities, in this order: balance, stickiness, racks. The first step computes only partition counts. Topics with the
same subscribers form a class and are interchangeable for balance, so counts are computed for classes. Each member
retains its partitions, and free partitions go to the member with fewest. Then partitions move one at a time from a
member to one that has at least two fewer, until no such move is left. With equal subscriptions the largest difference
is then one partition, with the fewest moves.

The second step selects the partitions. A member with a surplus first gives up those that have no replica in its own
rack but one in the rack of a receiver. A free partition goes to a member in the rack of a replica, if that member lacks
one (the idea of KIP-881).

Invariants: those of `assignor`; the same input gives the same output. Left out: moving a partition for its rack alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.assignors.assignor import (
    Assignment,
    MemberSpec,
    TopicSpec,
    Vacancies,
    freeze_assignment,
    member_order,
    racks_matter,
)


class _TopicClass:
    """Topics with the same subscribers; members are indexes into the sorted member list."""

    __slots__ = ("count", "free", "kept", "partition_count", "subscribers", "topics")

    def __init__(self, subscribers: tuple[int, ...]) -> None:
        self.subscribers = subscribers
        self.topics: list[TopicSpec] = []
        self.partition_count = 0
        self.free: list[tuple[Uuid, int]] = []
        self.kept: dict[int, list[tuple[Uuid, int]]] = {member: [] for member in subscribers}
        """Partitions of these topics that each subscriber already had."""
        self.count: dict[int, int] = {}
        """Number of partitions that each subscriber gets."""


def assign_uniform(members: Sequence[MemberSpec], topics: Mapping[Uuid, TopicSpec]) -> dict[str, Assignment]:
    """An `assignor.Assignor`; see the module."""
    ordered = sorted(members, key=member_order)
    classes = _classes(ordered, topics)
    _collect(ordered, classes)
    _count(len(ordered), classes)
    assigned: list[dict[Uuid, list[int]]] = [defaultdict(list) for _ in ordered]
    by_rack = racks_matter(ordered, topics.values())
    for topic_class in classes:
        _name(ordered, topic_class, topics, assigned, by_rack)
    return {
        member.member_id: freeze_assignment(assigned[index], member.assigned) for index, member in enumerate(ordered)
    }


def _classes(members: Sequence[MemberSpec], topics: Mapping[Uuid, TopicSpec]) -> list[_TopicClass]:
    """Group topics into classes, fewest subscribers first: their partitions have the fewest candidates."""
    if not members:
        return []
    classes: dict[tuple[int, ...], _TopicClass] = {}
    first = members[0].topic_ids
    homogeneous = all(member.topic_ids == first for member in members)
    all_members = tuple(range(len(members)))
    for topic_id in sorted(topics):
        if homogeneous:
            subscribers = all_members if topic_id in first else ()
        else:
            subscribers = tuple(index for index, member in enumerate(members) if topic_id in member.topic_ids)
        if not subscribers:
            continue
        topic_class = classes.get(subscribers)
        if topic_class is None:
            topic_class = classes[subscribers] = _TopicClass(subscribers)
        topic = topics[topic_id]
        topic_class.topics.append(topic)
        topic_class.partition_count += topic.partition_count
    return sorted(classes.values(), key=lambda each: (len(each.subscribers), each.subscribers))


def _collect(members: Sequence[MemberSpec], classes: Sequence[_TopicClass]) -> None:
    """Split each class into retained and free partitions. A partition with two owners stays with the first.

    Iterates over previous assignments, not over all members for each topic, which would be far more.
    """
    class_of = {topic.topic_id: topic_class for topic_class in classes for topic in topic_class.topics}
    free = {topic.topic_id: set(range(topic.partition_count)) for each in classes for topic in each.topics}
    for index, member in enumerate(members):
        for topic_id, had in member.assigned.items():
            topic_class = class_of.get(topic_id)
            if topic_class is None or index not in topic_class.kept:
                continue
            kept = had & free[topic_id]
            free[topic_id] -= kept
            topic_class.kept[index] += [(topic_id, partition) for partition in kept]
    for topic_class in classes:
        for topic in topic_class.topics:
            topic_class.free += [(topic.topic_id, partition) for partition in sorted(free[topic.topic_id])]


def _count(member_count: int, classes: Sequence[_TopicClass]) -> None:
    """Compute how many partitions of each class every subscriber gets."""
    load = [0] * member_count
    for topic_class in classes:
        for member, kept in topic_class.kept.items():
            topic_class.count[member] = len(kept)
            load[member] += len(kept)
    for topic_class in classes:
        heap = [(load[member], member) for member in topic_class.subscribers]
        heapify(heap)
        for _ in topic_class.free:
            least, member = heap[0]
            topic_class.count[member] += 1
            load[member] = least + 1
            heapreplace(heap, (least + 1, member))
    if len(classes) == 1:
        _even_out(classes[0])
    else:
        _balance(load, classes)


def _even_out(topic_class: _TopicClass) -> None:
    """Same result as `_balance` for a single class, without single moves.

    Each member gets the quotient; the remainder adds one partition to as many members. Members above the quotient are
    chosen first (the last of them if there are too many), then the first of the others.
    """
    count = topic_class.count
    quotient, remainder = divmod(sum(count.values()), len(count))
    rich = [member for member in topic_class.subscribers if count[member] > quotient]
    others = [member for member in topic_class.subscribers if count[member] <= quotient]
    lucky = rich[max(0, len(rich) - remainder) :] + others[: max(0, remainder - len(rich))]
    for member in topic_class.subscribers:
        count[member] = quotient
    for member in lucky:
        count[member] += 1


def _balance(load: list[int], classes: Sequence[_TopicClass]) -> None:
    """Move partitions to members with at least two fewer until no such move is left.

    Each move lowers the sum of the squared loads, so the loop ends. A donor without a receiver is examined again only
    after another member of one of its classes lost a partition.
    """
    least: list[list[tuple[int, int]]] = []
    classes_of: dict[int, list[int]] = defaultdict(list)
    for index, topic_class in enumerate(classes):
        if len(topic_class.subscribers) < 2:
            least.append([])
            continue
        heap = [(load[member], member) for member in topic_class.subscribers]
        heapify(heap)
        least.append(heap)
        for member in topic_class.subscribers:
            classes_of[member].append(index)
    donors = [(-load[member], member) for member in classes_of]
    heapify(donors)
    while donors:
        negated, donor = heappop(donors)
        if -negated != load[donor]:
            continue
        best = _best_taker(donor, load, classes, classes_of, least)
        if best is None:
            continue
        taker, index = best
        classes[index].count[donor] -= 1
        classes[index].count[taker] += 1
        load[donor] -= 1
        load[taker] += 1
        for member in (donor, taker):
            for each in classes_of[member]:
                heappush(least[each], (load[member], member))
            heappush(donors, (-load[member], member))
        _wake_donors(donor, load, classes, classes_of, donors)


def _best_taker(
    donor: int,
    load: Sequence[int],
    classes: Sequence[_TopicClass],
    classes_of: Mapping[int, Sequence[int]],
    least: Sequence[list[tuple[int, int]]],
) -> tuple[int, int] | None:
    """Return the least loaded member with at least two fewer that can receive from `donor`, and the class to use."""
    best: tuple[int, int, int] | None = None
    for index in classes_of[donor]:
        if not classes[index].count[donor]:
            continue
        heap = least[index]
        while heap[0][0] != load[heap[0][1]]:
            heappop(heap)
        taker_load, taker = heap[0]
        if taker_load + 2 <= load[donor] and (best is None or (taker_load, taker) < best[:2]):
            best = (taker_load, taker, index)
    return None if best is None else best[1:]


def _wake_donors(
    donor: int,
    load: Sequence[int],
    classes: Sequence[_TopicClass],
    classes_of: Mapping[int, Sequence[int]],
    donors: list[tuple[int, int]],
) -> None:
    """The load of `donor` dropped: members that share a class with it and have two more may now have a receiver."""
    for index in classes_of[donor]:
        for member in classes[index].subscribers:
            if load[member] >= load[donor] + 2 and classes[index].count[member]:
                heappush(donors, (-load[member], member))


def _name(
    members: Sequence[MemberSpec],
    topic_class: _TopicClass,
    topics: Mapping[Uuid, TopicSpec],
    assigned: Sequence[dict[Uuid, list[int]]],
    by_rack: bool,
) -> None:
    """Turn counts into partitions."""
    free = topic_class.free
    vacancies = Vacancies()
    lacking = frozenset(
        members[member].rack_id
        for member in topic_class.subscribers
        if by_rack and topic_class.count[member] > len(topic_class.kept[member])
    )
    for member in topic_class.subscribers:
        kept = topic_class.kept[member]
        surplus = len(kept) - topic_class.count[member]
        if surplus > 0:
            rack = members[member].rack_id if by_rack else None
            # Alternate between topics, so that a member's retained partitions are spread over them.
            kept.sort(key=lambda each: (_misplaced(topics[each[0]], each[1], rack, lacking), each[1], each[0]))
            free += kept[-surplus:]
            del kept[-surplus:]
        for topic_id, partition in kept:
            assigned[member][topic_id].append(partition)
        vacancies.add(member, -surplus)
    free.sort()

    def give(member: int, topic_id: Uuid, partition: int) -> None:
        assigned[member][topic_id].append(partition)

    if not by_rack:
        vacancies.deal(free, give)
        return
    by_rack_id: dict[str, list[int]] = defaultdict(list)
    for member in topic_class.subscribers:
        rack = members[member].rack_id
        if rack is not None:
            by_rack_id[rack].append(member)

    def prefers(topic_id: Uuid, partition: int) -> list[int]:
        racks = topics[topic_id].racks
        if racks is None:
            return []
        return [member for rack in sorted(racks[partition]) for member in by_rack_id.get(rack, ())]

    vacancies.deal(free, give, prefers)


def _misplaced(topic: TopicSpec, partition: int, rack: str | None, lacking: frozenset[str | None]) -> int:
    """Rank a partition for removal: 0 if it is in its owner's rack or racks are unknown, 2 if it is in a rack with
    members that lack partitions, else 1."""
    if rack is None or topic.racks is None or rack in topic.racks[partition]:
        return 0
    return 1 if lacking.isdisjoint(topic.racks[partition]) else 2
