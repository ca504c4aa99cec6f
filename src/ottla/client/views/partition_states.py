"""Partitions in a state that an operator looks for: without a leader, or with too few replicas in sync."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.failure import TopicNotFound
from ottla.client.wire.model import ResourceType, TopicInfo

MIN_ISR = "min.insync.replicas"


class PartitionState(NamedTuple):
    """A partition and its replicas; `leader` is None without one."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int
    """`min.insync.replicas` of the topic, at most the number of replicas."""


def filtered_partitions(
    cluster: Cluster,
    names: Sequence[str],
    *,
    under_replicated: bool = False,
    unavailable: bool = False,
    at_min_isr: bool = False,
    under_min_isr: bool = False,
) -> list[PartitionState]:
    """The partitions of the named topics, or of all, that match one of the filters. Raises TopicNotFound."""
    topics = cluster.topics.all()
    for name in names:
        if name not in topics:
            raise TopicNotFound(name, known=topics)
    return [
        state
        for state in partition_states(cluster, [topics[name] for name in dict.fromkeys(names or topics)])
        if (under_replicated and len(state.isr) < len(state.replicas))
        or (unavailable and state.leader is None)
        or (at_min_isr and len(state.isr) == state.min_isr)
        or (under_min_isr and len(state.isr) < state.min_isr)
    ]


def partition_states(cluster: Cluster, topics: Iterable[TopicInfo]) -> list[PartitionState]:
    """The states of all partitions of the topics."""
    states = []
    for topic in topics:
        (entry, *_) = cluster.configs.describe(ResourceType.TOPIC, topic.name, [MIN_ISR])
        minimum = int(entry.value or 1)
        states += [
            PartitionState(
                topic.name,
                each.index,
                each.leader if each.is_led else None,
                each.replicas,
                each.isr,
                min(minimum, len(each.replicas)),
            )
            for each in topic.partitions
        ]
    return states
