"""Offsets from options: the partitions of a subscription, their starts and ends, and the cut into tasks.

Each function here sends one request to the cluster for all partitions; nothing is cached between calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Literal, Protocol

from ottla.client.wire.failure import TopicNotFound
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_OFFSET, OffsetInfo, TopicInfo
from ottla.common.errors import OperatorError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.datasource.options import Bound, Subscription
from ottla.pipeline.model.plan import ClusterView, OffsetRange, TopicView
from ottla.pipeline.model.topic_filter import topic_filter

Offsets = Mapping[TopicPartition, int]


class SourceTopics(TopicView, Protocol):
    """The part of `Cluster.topics` that the data source uses."""

    def all(self) -> dict[str, TopicInfo]: ...
    def forget(self) -> None: ...


class SourceGroups(Protocol):
    """The part of `Cluster.groups` that the data source uses."""

    def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None: ...


class SourceCluster(ClusterView, Protocol):
    """The part of `Cluster` that the data source uses."""

    @property
    def topics(self) -> SourceTopics: ...
    @property
    def groups(self) -> SourceGroups: ...
    def close(self) -> None: ...


def subscribed(cluster: SourceCluster, subscription: Subscription) -> dict[str, TopicInfo]:
    """The topics of a subscription that exist, by name; raises OperatorError for an invalid pattern.

    Like Kafka's consumer, a pattern has to match the whole name and leaves internal topics out.
    """
    if subscription.pattern:
        matches = topic_filter(subscription.pattern, "subscribePattern")
        return {name: topic for name, topic in cluster.topics.all().items() if matches(topic)}
    names = subscription.topics or sorted({topic for topic, _ in subscription.partitions})
    found = {}
    for name in names:
        with suppress(TopicNotFound):
            found[name] = cluster.topics.get(name)
    return found


def positions(topics: Mapping[str, TopicInfo], subscription: Subscription) -> list[TopicPartition]:
    """The partitions to read, of existing topics."""
    every = [(name, one.index) for name, topic in topics.items() for one in topic.partitions]
    return [key for key in every if key in subscription.partitions] if subscription.partitions else every


def require_all(topics: Mapping[str, TopicInfo], subscription: Subscription) -> None:
    """Raise OperatorError unless all topics and partitions of a subscription exist."""
    wanted = subscription.topics or sorted({topic for topic, _ in subscription.partitions})
    missing = [name for name in wanted if name not in topics]
    if missing:
        raise OperatorError(f"topic {missing[0]!r} does not exist{_others(len(missing) - 1)}")
    found = set(positions(topics, subscription))
    for topic, partition in sorted(subscription.partitions - found):
        raise OperatorError(f"assign names partition {partition} of topic {topic!r}, which does not exist")
    if subscription.pattern and not topics:
        raise OperatorError(f"subscribePattern {subscription.pattern!r} matches no topic")


def _others(count: int) -> str:
    return f", nor do {count} others of the option" if count else ""


def latest(cluster: SourceCluster, keys: Iterable[TopicPartition], isolation: str) -> dict[TopicPartition, OffsetInfo]:
    """The ends of partitions, with the leader epochs at which they were read."""
    return _ask(cluster, dict.fromkeys(keys, LATEST_TIMESTAMP), isolation)


def earliest(cluster: SourceCluster, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Log start offsets of partitions."""
    found = _ask(cluster, dict.fromkeys(keys, EARLIEST_TIMESTAMP), "read_uncommitted")
    return {key: info.offset for key, info in found.items()}


def resolve(
    cluster: SourceCluster,
    bound: Bound,
    ends: Mapping[TopicPartition, OffsetInfo],
    isolation: str,
    no_match: Literal["error", "latest"],
) -> dict[TopicPartition, int]:
    """The offset of `bound` in each partition of `ends`, which has their present ends.

    A time after all records means the end if `no_match` allows it. Raises OperatorError.
    """
    asked = _by_position(bound, ends)
    fixed = {key: value for key, value in asked.items() if value >= 0} if bound.offsets is not None else {}
    times = {key: value for key, value in asked.items() if key not in fixed and value != LATEST_TIMESTAMP}
    found = {key: info.offset for key, info in _ask(cluster, times, isolation).items()}
    for key, offset in found.items():
        if offset == NO_OFFSET and no_match == "error":
            raise OperatorError(
                f"{bound.option}: topic {key[0]!r} partition {key[1]} has no record at {times[key]} ms or later; "
                "startingOffsetsByTimestampStrategy latest starts such a partition at its end"
            )
    return {
        key: fixed[key] if key in fixed else ends[key].offset if found.get(key, NO_OFFSET) < 0 else found[key]
        for key in ends
    }


def _by_position(bound: Bound, keys: Mapping[TopicPartition, object]) -> Mapping[TopicPartition, int]:
    given = bound.offsets if bound.offsets is not None else bound.times
    if given is None:
        return dict.fromkeys(keys, bound.time)
    for what, different in (("lacks", keys.keys() - given.keys()), ("names", given.keys() - keys.keys())):
        for topic, partition in sorted(different):
            raise OperatorError(
                f"{bound.option} {what} partition {partition} of topic {topic!r}: it has to name exactly the "
                "partitions that are read"
            )
    return given


def _ask(
    cluster: SourceCluster, times: Mapping[TopicPartition, int], isolation: str
) -> dict[TopicPartition, OffsetInfo]:
    return cluster.records.list_offsets(times, isolation=isolation) if times else {}


def cut(ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Ranges as tasks: one a partition unless more are wanted; empty ranges are dropped.

    Each gets at most `max_records` offsets; ranges are then divided in proportion until there are about
    `min_partitions`. An offset counts as a record, as in the connector.
    """
    whole = [one for one in ranges if one.offsets > 0]
    if max_records is not None:
        whole = [piece for one in whole for piece in _divided(one, -(-one.offsets // max_records))]
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    total = sum(one.offsets for one in whole)
    return [piece for one in whole for piece in _divided(one, max(1, round(min_partitions * one.offsets / total)))]


def gathered(ranges: Iterable[OffsetRange], most: int) -> list[tuple[OffsetRange, ...]]:
    """Ranges as tasks: consecutive ones share a task if they have at most `most` offsets together."""
    tasks: list[tuple[OffsetRange, ...]] = []
    offsets = 0
    for one in ranges:
        offsets += one.offsets
        if tasks and offsets <= most:
            tasks[-1] = (*tasks[-1], one)
        else:
            tasks.append((one,))
            offsets = one.offsets
    return tasks


def _divided(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    pieces = min(pieces, whole.offsets)
    borders = [whole.start_offset + whole.offsets * number // pieces for number in range(pieces + 1)]
    return [replace(whole, start_offset=start, end_offset=end) for start, end in itertools.pairwise(borders)]
