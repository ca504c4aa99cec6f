"""Reassignment plans: pure functions of the cluster's state.

A plan contains all replicas of each partition that changes, with the preferred leader first. Replicas stay where they
are if possible, since every new one is copied in full. New replicas go to the broker with the fewest, on a rack
without a replica of the partition if there is one.

Left out: the execution of a plan (`client.admin.reassignments`), and leadership moves without replica moves
(elections).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.client.wire.failure import TopicNotFound
from ottla.client.wire.model import BrokerInfo, PartitionInfo, TopicInfo
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

Plan = dict[TopicPartition, tuple[int, ...]]


class _ReplicaCounts:
    """Replica count of each broker, including the assignments of the plan so far."""

    def __init__(self, brokers: Iterable[BrokerInfo], topics: Iterable[TopicInfo]) -> None:
        self._racks = {broker.node_id: broker.rack for broker in brokers}
        self._counts = dict.fromkeys(self._racks, 0)
        for topic in topics:
            for partition in topic.partitions:
                self.add(partition.replicas)

    def add(self, replicas: Iterable[int]) -> None:
        for broker_id in replicas:
            if broker_id in self._counts:
                self._counts[broker_id] += 1

    def best(self, taken: Sequence[int]) -> int | None:
        """The broker for another replica of a partition that is on `taken`; None if there is none left."""
        racks = {self._racks.get(broker_id) for broker_id in taken}
        candidates = [broker_id for broker_id in self._counts if broker_id not in taken]
        if not candidates:
            return None
        return min(candidates, key=lambda each: (self._racks[each] in racks, self._counts[each], each))


def with_replication_factor(
    brokers: Sequence[BrokerInfo], topics: Mapping[str, TopicInfo], chosen: Iterable[str], factor: int
) -> Plan:
    """A plan that gives the partitions of the chosen topics `factor` replicas each; the first replicas stay.

    Raises TopicNotFound, KafkaError INVALID_REPLICATION_FACTOR if there are fewer live brokers.
    """
    if factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor of {factor} needs as many live brokers, but there are {len(brokers)}",
        )
    load = _ReplicaCounts(brokers, topics.values())
    plan: Plan = {}
    for name in chosen:
        if name not in topics:
            raise TopicNotFound(name, known=topics)
        for _, partition in _partitions({name: topics[name]}):
            replicas = list(partition.replicas[:factor])
            while len(replicas) < factor:
                target = load.best(replicas)
                if target is None:
                    break
                replicas.append(target)
                load.add([target])
            if tuple(replicas) != partition.replicas:
                plan[name, partition.index] = tuple(replicas)
    return plan


def _partitions(topics: Mapping[str, TopicInfo]) -> Iterable[tuple[str, PartitionInfo]]:
    for name in sorted(topics):
        for partition in topics[name].partitions:
            yield name, partition


def throttled_replicas(plan: Plan, topics: Mapping[str, TopicInfo]) -> dict[str, tuple[str, str]]:
    """The values of `leader.` and `follower.replication.throttled.replicas` of each topic for the plan.

    Reads at the current replicas and writes at the new ones are throttled, as `partition:broker` items (KIP-73).
    """
    items: dict[str, tuple[list[str], list[str]]] = {}
    for (name, index), replicas in plan.items():
        present = topics[name].partitions[index].replicas
        sources, targets = items.setdefault(name, ([], []))
        sources += [f"{index}:{broker_id}" for broker_id in present]
        targets += [f"{index}:{broker_id}" for broker_id in replicas if broker_id not in present]
    return {name: (",".join(sources), ",".join(targets)) for name, (sources, targets) in items.items() if targets}
