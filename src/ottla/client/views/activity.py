"""Traffic of a cluster: rates and lag, from consecutive passes of `Cluster.activity`.

Rates are computed here from offsets and times, not reported by brokers, so they work with every Kafka. A rate needs two
passes that read the same partition; until then it is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.admin.activity import ActivityReading, GroupReading
from ottla.client.views.rates import (
    CommitKey,
    PartitionKey,
    RateMeter,
    commit_rates,
    group_rates,
    partition_keys,
    partition_rates,
    sum_known,
)
from ottla.client.wire.model import ClusterBroker, TopicInfo
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.endpoint import format_address

LIVE, FENCED, SILENT, GONE = "live", "fenced", "no response", "gone"
"""States of a broker: `SILENT` did not respond, `GONE` was registered earlier."""


class BrokerActivity(NamedTuple):
    """A broker that is registered or was seen earlier. Counts are those of the metadata."""

    node_id: int
    address: str
    rack: str | None
    state: str
    is_controller: bool
    leaders: int
    replicas: int
    out_of_sync: int
    """Replicas of this broker that are not in the ISR."""
    records_per_s: float | None
    """Records written to the partitions that it leads."""
    size_bytes: int | None


class TopicActivity(NamedTuple):
    """A topic."""

    name: str
    is_internal: bool
    partitions: int
    under_replicated: int
    without_leader: int
    records_per_s: float | None
    size_bytes: int | None
    """Bytes of all replicas."""


class GroupActivity(NamedTuple):
    """A group."""

    group_id: str
    group_type: str | None
    state: str | None
    topics: int
    lag: int | None
    consumed_per_s: float | None
    """Records per second by which the committed offsets advance."""
    produced_per_s: float | None
    """Records per second written to the partitions of the group."""
    catch_up_s: float | None


class ClusterActivity(NamedTuple):
    """All of it, unsorted. Each problem is a sentence that names a broker."""

    cluster_id: str | None
    records_per_s: float | None
    brokers: list[BrokerActivity]
    topics: list[TopicActivity]
    groups: list[GroupActivity]
    problems: list[str]


class ActivityTracker:
    """Rates from consecutive passes. Remembers the last sample of existing partitions and groups, and all brokers."""

    def __init__(self) -> None:
        self._ends: RateMeter[PartitionKey] = RateMeter()
        self._rates: dict[TopicPartition, float | None] = {}
        self._commits: RateMeter[CommitKey] = RateMeter()
        self._groups: dict[str, GroupActivity] = {}
        self._seen: dict[int, ClusterBroker] = {}

    def update(self, reading: ActivityReading, now_s: float) -> ClusterActivity:
        """The activity between the earlier passes and this one, which ended at `now_s`."""
        self._measure_partitions(reading, now_s)
        topics = [self._topic(topic, reading) for topic in reading.topics.values()]
        groups = self._all_groups(reading, now_s)
        brokers = self._brokers(reading)
        problems = [
            f"broker {each.node_id} ({each.address}) does not respond: {each.reason}" for each in reading.problems
        ]
        problems += [
            f"broker {each.node_id} ({each.address}) {'has no session' if each.state == FENCED else 'is gone'}"
            for each in brokers
            if each.state in (FENCED, GONE)
        ]
        return ClusterActivity(reading.cluster_id, sum_known(self._rates.values()), brokers, topics, groups, problems)

    def _measure_partitions(self, reading: ActivityReading, now_s: float) -> None:
        self._rates = partition_rates(self._ends, reading.topics.values(), reading.ends, now_s)
        existing = {key for topic in reading.topics.values() for key in partition_keys(topic)}
        self._ends.retain(existing.__contains__)

    def _topic(self, topic: TopicInfo, reading: ActivityReading) -> TopicActivity:
        places = [(topic.name, partition.index) for partition in topic.partitions]
        sizes = [found[place] for found in reading.sizes.values() for place in places if place in found]
        return TopicActivity(
            topic.name,
            topic.is_internal,
            len(topic.partitions),
            under_replicated=sum(len(each.isr) < len(each.replicas) for each in topic.partitions),
            without_leader=sum(not each.is_led for each in topic.partitions),
            records_per_s=sum_known(self._rates.get(place) for place in places),
            size_bytes=sum(sizes) if sizes else None,
        )

    def _brokers(self, reading: ActivityReading) -> list[BrokerActivity]:
        registered = {broker.node_id: broker for broker in reading.brokers}
        self._seen |= registered
        silent = {problem.node_id for problem in reading.problems}
        led: dict[int, list[TopicPartition]] = {}
        replicas: dict[int, int] = {}
        out_of_sync: dict[int, int] = {}
        for topic in reading.topics.values():
            for each in topic.partitions:
                led.setdefault(each.leader, []).append((topic.name, each.index))
                for node_id in each.replicas:
                    replicas[node_id] = replicas.get(node_id, 0) + 1
                    out_of_sync[node_id] = out_of_sync.get(node_id, 0) + (node_id not in each.isr)
        found = []
        for node_id, broker in sorted(self._seen.items()):
            state = GONE if node_id not in registered else FENCED if broker.fenced else LIVE
            if state == LIVE and node_id in silent:
                state = SILENT
            sizes = reading.sizes.get(node_id)
            found.append(
                BrokerActivity(
                    node_id,
                    format_address(broker.host, broker.port),
                    broker.rack,
                    state,
                    is_controller=node_id == reading.controller_id,
                    leaders=len(led.get(node_id, ())),
                    replicas=replicas.get(node_id, 0),
                    out_of_sync=out_of_sync.get(node_id, 0),
                    records_per_s=sum_known(self._rates.get(place) for place in led.get(node_id, ())),
                    size_bytes=None if sizes is None else sum(sizes.values()),
                )
            )
        return found

    def _all_groups(self, reading: ActivityReading, now_s: float) -> list[GroupActivity]:
        groups: dict[str, GroupActivity] = {}
        for each in reading.groups:
            group_id = each.listing.group_id
            if each.offsets is None:
                before = self._groups.get(group_id, _unread(each))
                groups[group_id] = before._replace(state=each.listing.state)
            else:
                groups[group_id] = self._group(each, each.offsets, reading, now_s)
        self._commits.retain(lambda key: key[0] in groups)
        self._groups = groups
        return list(groups.values())

    def _group(
        self, each: GroupReading, offsets: Mapping[TopicPartition, int], reading: ActivityReading, now_s: float
    ) -> GroupActivity:
        consumed = commit_rates(self._commits, each.listing.group_id, offsets, now_s)
        rates = group_rates(offsets, reading.ends, self._rates, consumed)
        return _unread(each)._replace(topics=len({topic for topic, _ in offsets}), **rates._asdict())


def _unread(each: GroupReading) -> GroupActivity:
    listing = each.listing
    return GroupActivity(listing.group_id, listing.group_type, listing.state, 0, None, None, None, None)
