"""Rebalance plans: pure functions that spread replicas and preferred leaders over brokers.

A plan is computed in four steps: replicas leave drained brokers; partitions get replicas on more racks; replicas move
from brokers with more load to brokers with less; preferred leaders are spread by reordering replicas. Each step repeats
the best single change until none is left, so that a plan of the result is empty.

Invariants: a partition keeps its number of replicas, has never two on one broker, and is on fewer racks than before
only if no live broker is left on the rack of a drained one. A partition that is not fully in sync is left as it is,
except for replicas on drained brokers. A broker does not get more bytes than it has room for.

Left out: the execution of a plan (`cli.rebalance`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.client.admin.reassignment_plan import Plan
from ottla.client.wire.model import BrokerInfo, PartitionInfo, TopicInfo
from ottla.common.errors import OperatorError
from ottla.common.kafka.topic_partition import TopicPartition

Racks = frozenset[str | None]
Item = tuple[int, TopicPartition]
"""Weight and partition of a replica."""

BYTES, PARTITIONS, LEADERS, RACK = "bytes", "partitions", "leaders", "rack"
GOALS = (BYTES, PARTITIONS, LEADERS, RACK)
DEFAULT_GOALS = (RACK, BYTES, LEADERS)
MIN_REPLICA_BYTES = 1 << 20
"""Weight of an empty replica when replicas are spread by bytes."""
TOLERANCE = 50
"""Brokers whose loads differ by less than the mean load divided by this number are balanced."""
ROOM_SHARE = 0.9
"""Share of the free bytes of a broker that a plan may use."""


class RebalanceInput(NamedTuple):
    """A cluster, and the options of the operator."""

    brokers: Sequence[BrokerInfo]
    """Live brokers."""
    topics: Mapping[str, TopicInfo]
    sizes: Mapping[TopicPartition, int]
    """Bytes of a replica of each partition; 0 if it is missing."""
    goals: Sequence[str] = DEFAULT_GOALS
    filled: frozenset[int] = frozenset()
    """Brokers that get replicas; empty for all."""
    drained: frozenset[int] = frozenset()
    """Brokers that lose all replicas; they need not be live. Only partitions with a replica there are considered."""
    pinned: frozenset[TopicPartition] = frozenset()
    """Partitions that must not change, such as those of an ongoing reassignment."""
    room: Mapping[int, int] = {}
    """Free bytes of brokers; unlimited for others."""


class RebalancePlan(NamedTuple):
    """Changed partitions with all their replicas, and the effect of the change."""

    targets: Plan
    moved_bytes: int
    """Bytes that are copied between brokers."""
    incoming: Mapping[int, int]
    """Bytes that each broker receives."""
    outgoing: Mapping[int, int]
    """Bytes that each broker sends, if leaders stay until the end."""
    skipped: Sequence[TopicPartition]
    """Partitions that were not considered, because they are not fully in sync."""
    on_fewer_racks: Sequence[TopicPartition]
    """Partitions that lose a rack with a drained broker."""

    def seconds(self, bytes_per_second: int) -> float:
        """The time for copies at this rate for each broker and direction."""
        return max((*self.incoming.values(), *self.outgoing.values(), 0)) / bytes_per_second


def rebalance_plan(given: RebalanceInput) -> RebalancePlan:
    """The plan for a cluster. Raises OperatorError if a drained broker can't be emptied, or for unknown brokers."""
    known = {broker.node_id for broker in given.brokers}
    _check(given, known)
    state = _Assignment(given)
    for key in sorted(state.replicas):
        _drain(state, key, given.drained)
    if RACK in given.goals:
        for key in sorted(state.replicas):
            _spread_over_racks(state, key)
    if BYTES in given.goals or PARTITIONS in given.goals:
        while _move_one(state, given.filled):
            pass
    if LEADERS in given.goals:
        while _spread_leaders(state):
            pass
    return state.plan()


def _check(given: RebalanceInput, known: set[int]) -> None:
    unknown = sorted(given.filled - known)
    if unknown:
        raise OperatorError(f"broker {unknown[0]} is not live: live brokers are {', '.join(map(str, sorted(known)))}")
    if not known - given.drained:
        raise OperatorError("no other live broker can take the replicas: start another broker first")
    if BYTES in given.goals and PARTITIONS in given.goals:
        raise OperatorError("replicas are spread by bytes or by partitions: choose one of them")


class _Assignment:
    """The assignment of all partitions that may change, and the load of each broker."""

    def __init__(self, given: RebalanceInput) -> None:
        self._given = given
        self.racks = {broker.node_id: broker.rack for broker in given.brokers}
        self.targets = sorted(self.racks.keys() - given.drained)
        self.load = dict.fromkeys(self.racks, 0)
        self.leads = dict.fromkeys(self.racks, 0)
        self._room = {broker: int(free * ROOM_SHARE) for broker, free in given.room.items()}
        self.before: dict[TopicPartition, tuple[int, ...]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self.skipped: list[TopicPartition] = []
        self.replicas: dict[TopicPartition, tuple[int, ...]] = {}
        self._by_bytes = BYTES in given.goals
        for key, partition in _partitions(given.topics):
            self.before[key] = partition.replicas
            self._leaders[key] = partition.leader
            missing = set(partition.replicas) - set(partition.isr)
            is_considered = not given.drained or not given.drained.isdisjoint(partition.replicas)
            if key not in given.pinned and is_considered:
                if missing <= given.drained and partition.is_led:
                    self.replicas[key] = partition.replicas
                else:
                    self.skipped.append(key)
            self._count(key, partition.replicas, 1)
        self.on: dict[int, dict[Racks, list[Item]]] = {broker: {} for broker in self.racks}
        """Replicas that may move, by broker and by the racks of the other replicas of their partitions, sorted."""
        for key, found in self.replicas.items():
            for broker in set(found) & self.on.keys():
                self.on[broker].setdefault(self.other_racks(found, broker), []).append((self.weight(key), key))
        for groups in self.on.values():
            for items in groups.values():
                items.sort()

    def weight(self, key: TopicPartition) -> int:
        """The load of a replica of the partition."""
        return self._given.sizes.get(key, 0) + MIN_REPLICA_BYTES if self._by_bytes else 1

    def _count(self, key: TopicPartition, replicas: Sequence[int], sign: int) -> None:
        for broker in replicas:
            if broker in self.load:
                self.load[broker] += sign * self.weight(key)
        if replicas and replicas[0] in self.leads:
            self.leads[replicas[0]] += sign

    def change(self, key: TopicPartition, replicas: tuple[int, ...]) -> None:
        """Give a partition other replicas, or another order."""
        old = self.replicas[key]
        self._count(key, old, -1)
        self._count(key, replicas, 1)
        self.replicas[key] = replicas
        size = self._given.sizes.get(key, 0)
        before, item = self.before[key], (self.weight(key), key)
        if set(old) != set(replicas):
            for broker in set(old) & self.on.keys():
                items = self.on[broker][self.other_racks(old, broker)]
                del items[bisect_left(items, item)]
            for broker in set(replicas) & self.on.keys():
                insort(self.on[broker].setdefault(self.other_racks(replicas, broker), []), item)
        for broker in set(old) - set(replicas):
            if broker in self._room and broker not in before:
                self._room[broker] += size
        for broker in set(replicas) - set(old):
            if broker in self._room and broker not in before:
                self._room[broker] -= size

    def other_racks(self, replicas: Iterable[int], broker: int) -> Racks:
        """The racks of the replicas on other live brokers."""
        return frozenset(self.racks[each] for each in replicas if each != broker and each in self.racks)

    def rack_count(self, replicas: Iterable[int]) -> int:
        """The number of racks of these replicas; brokers that are not live have none."""
        return len({self.racks[broker] for broker in replicas if broker in self.racks})

    def fits(self, key: TopicPartition, target: int) -> bool:
        """Return whether the broker may get a replica of the partition."""
        if target in self.replicas[key]:
            return False
        room = self._room.get(target)
        return room is None or target in self.before[key] or self._given.sizes.get(key, 0) <= room

    def plan(self) -> RebalancePlan:
        """The difference to the assignment before."""
        targets = {key: found for key, found in sorted(self.replicas.items()) if found != self.before[key]}
        incoming: dict[int, int] = {}
        outgoing: dict[int, int] = {}
        for key, found in targets.items():
            size = self._given.sizes.get(key, 0)
            for broker in set(found) - set(self.before[key]):
                incoming[broker] = incoming.get(broker, 0) + size
                leader = self._leaders[key]
                outgoing[leader] = outgoing.get(leader, 0) + size
        fewer = [key for key, found in targets.items() if self.rack_count(found) < self.rack_count(self.before[key])]
        return RebalancePlan(targets, sum(incoming.values()), incoming, outgoing, self.skipped, fewer)


def _partitions(topics: Mapping[str, TopicInfo]) -> Iterator[tuple[TopicPartition, PartitionInfo]]:
    for name in sorted(topics):
        for partition in topics[name].partitions:
            yield (name, partition.index), partition


def _replaced(replicas: tuple[int, ...], old: int, new: int) -> tuple[int, ...]:
    return tuple(new if broker == old else broker for broker in replicas)


def _drain(state: _Assignment, key: TopicPartition, drained: frozenset[int]) -> None:
    """Move the replicas of a partition off drained brokers, to other racks than those of the remaining replicas."""
    for broker in state.replicas[key]:
        if broker not in drained:
            continue
        left = [each for each in state.replicas[key] if each != broker]
        candidates = [each for each in state.targets if state.fits(key, each)]
        if not candidates:
            raise OperatorError(
                f"no other live broker can take the replica of {key[0]}-{key[1]} on broker {broker}: start another "
                "broker, free disk space, or lower the replication factor first"
            )
        racks = state.rack_count(left)
        best = min(candidates, key=lambda each: (state.rack_count([*left, each]) == racks, state.load[each], each))
        state.change(key, _replaced(state.replicas[key], broker, best))


def _spread_over_racks(state: _Assignment, key: TopicPartition) -> None:
    """Replace replicas that share a rack by replicas on other racks, as long as there are any."""
    while True:
        replicas = state.replicas[key]
        racks = [state.racks.get(broker) for broker in replicas]
        shared = [broker for broker, rack in zip(replicas, racks, strict=True) if racks.count(rack) > 1]
        candidates = [each for each in state.targets if state.racks[each] not in racks and state.fits(key, each)]
        if not shared or not candidates:
            return
        target = min(candidates, key=lambda each: (state.load[each], each))
        source = max(shared, key=lambda each: (state.load.get(each, 0), each))
        state.change(key, _replaced(replicas, source, target))


def _move_one(state: _Assignment, filled: frozenset[int]) -> bool:
    """Move the replica that brings two brokers closest to each other; False if no move does.

    A move must lower the difference of their loads, and the difference must exceed the tolerance.
    """
    targets = [broker for broker in state.targets if not filled or broker in filled]
    sources = [broker for broker in state.targets if not filled or broker not in filled]
    tolerance = sum(state.load[broker] for broker in state.targets) // (len(state.targets) * TOLERANCE)
    for source in sorted(sources, key=lambda each: (-state.load[each], each)):
        for target in sorted(targets, key=lambda each: (state.load[each], each)):
            difference = state.load[source] - state.load[target]
            if difference <= tolerance:
                break
            key = _best_move(state, source, target, difference)
            if key is not None:
                state.change(key, _replaced(state.replicas[key], source, target))
                return True
    return False


def _best_move(state: _Assignment, source: int, target: int, difference: int) -> TopicPartition | None:
    """The replica on `source` whose move to `target` leaves the smallest difference; None if none lowers it."""
    best: Item | None = None
    for racks, items in state.on[source].items():
        if len(racks | {state.racks[target]}) < len(racks | {state.racks[source]}):
            continue
        for weight, key in _nearest(items, difference):
            left = abs(difference - 2 * weight)
            if left >= difference or (best is not None and (left, key) >= best):
                break
            if state.fits(key, target):
                best = left, key
                break
    return None if best is None else best[1]


def _nearest(items: Sequence[Item], difference: int) -> Iterator[Item]:
    """The items of a sorted list, those first whose weight is closest to half of the difference."""
    right = bisect_left(items, difference, key=lambda item: 2 * item[0])
    left = right - 1
    while left >= 0 or right < len(items):
        if right >= len(items) or (left >= 0 and difference - 2 * items[left][0] <= 2 * items[right][0] - difference):
            yield items[left]
            left -= 1
        else:
            yield items[right]
            right += 1


def _spread_leaders(state: _Assignment) -> bool:
    """Exchange preferred leaders for replicas on brokers that lead at least two fewer; False if there are none."""
    changed = False
    for source in sorted(state.targets, key=lambda each: (-state.leads[each], each)):
        led = [key for items in state.on[source].values() for _, key in items if state.replicas[key][0] == source]
        for key in sorted(led):
            replicas = state.replicas[key]
            followers = [each for each in replicas[1:] if each in state.leads]
            target = min(followers, key=lambda each: (state.leads[each], each), default=source)
            if state.leads[source] - state.leads[target] >= 2:
                position = replicas.index(target)
                state.change(key, (target, *replicas[1:position], source, *replicas[position + 1 :]))
                changed = True
    return changed
