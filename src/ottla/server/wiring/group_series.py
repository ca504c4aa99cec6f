"""Series of consumer groups, computed at a scrape: the names of kafka_exporter and of kminion.

The coordinator of a group exports them. Lag is the high watermark of the replica on this broker minus the committed
offset, and at least 0. A follower learns the high watermark with its fetches, so its lag may trail by one fetch. A
partition without a replica on this broker has an offset but no lag; `ottla_consumergroup_partitions_without_lag` counts
these, and the sum of their topic is omitted.

Invariant: at most `MAX_GROUPS` groups and `MAX_OFFSETS` committed offsets are exported, the oldest groups first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from ottla.common.errors import KafkaError
from ottla.coordinator.group.group import Group
from ottla.coordinator.group.offsets.offsets import Offsets
from ottla.coordinator.group.shard import GroupCoordinatorShard
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.metrics.series import FamilyStart, Step, label_text
from ottla.replica.manager import ReplicaManager

MAX_GROUPS = 10_000
"""Groups of a broker with series."""
MAX_OFFSETS = 20_000
"""Committed offsets of a broker with series."""

_EXPORTER = "kafka_consumergroup_"
_KMINION = "kminion_kafka_consumer_group_topic_"
_KMINION_GROUP = "kminion_kafka_consumer_group_"
_STABLE = "Stable"


class _Row(NamedTuple):
    """A committed offset."""

    group: str
    topic: str
    partition: int
    offset: int
    lag: int | None
    """None if this broker has no replica."""


class _Sum:
    """Sums of one topic of a group."""

    __slots__ = ("lag", "offset")

    def __init__(self) -> None:
        self.offset = 0
        self.lag: int | None = 0
        """None if the lag of a partition is unknown."""

    def add(self, row: _Row) -> None:
        """Add one partition."""
        self.offset += row.offset
        self.lag = None if self.lag is None or row.lag is None else self.lag + row.lag


class GroupSeries:
    """Collector of the groups that one broker coordinates."""

    __slots__ = ("_node_id", "_replicas", "_runtime")

    def __init__(
        self, runtime: CoordinatorRuntime[GroupCoordinatorShard], replicas: ReplicaManager, node_id: int
    ) -> None:
        self._runtime = runtime
        self._replicas = replicas
        self._node_id = node_id

    def __call__(self) -> Iterator[Step]:
        """The families, one after the other."""
        groups, all_groups, all_offsets = self._groups()
        rows: list[_Row] = []
        for group, offsets in groups:
            for topic, partition, offset in islice(offsets.committed(group.group_id), MAX_OFFSETS - len(rows)):
                rows.append(_Row(group.group_id, topic, partition, offset, self._lag(topic, partition, offset)))
                yield None
            yield None
        yield FamilyStart(f"{_EXPORTER}members", "Members of a group.")
        for group, _ in groups:
            yield label_text((("consumergroup", group.group_id),)), len(group.members)
        yield FamilyStart(f"{_KMINION_GROUP}members", "Members of a group.")
        for group, _ in groups:
            yield label_text((("group_id", group.group_id),)), len(group.members)
        yield FamilyStart(f"{_KMINION_GROUP}info", "1 for a stable group, else 0, with its coordinator and state.")
        for group, _ in groups:
            yield self._info(group)
        yield from _partitions(rows)
        yield from _topics(rows)
        yield FamilyStart(
            "ottla_consumergroup_partitions_without_lag",
            "Committed offsets of partitions without a replica on the group's coordinator.",
        )
        yield "", sum(row.lag is None for row in rows)
        yield FamilyStart("ottla_metrics_groups_omitted", "Groups without series, above the bound.")
        yield "", all_groups - len(groups)
        yield FamilyStart("ottla_metrics_offsets_omitted", "Committed offsets without series, above the bounds.")
        yield "", max(0, all_offsets - len(rows))

    def _info(self, group: Group) -> Step:
        state = group.state_name()
        labels = (
            ("coordinator_id", str(self._node_id)),
            ("group_id", group.group_id),
            ("protocol_type", group.protocol_type or ""),
            ("state", state),
        )
        return label_text(labels), int(state == _STABLE)

    def _groups(self) -> tuple[list[tuple[Group, Offsets]], int, int]:
        """Groups with the offsets of their shard, and the numbers of all groups and of all offsets."""
        groups: list[tuple[Group, Offsets]] = []
        group_count = offset_count = 0
        for _, shard in self._runtime.active_shards():
            group_count += len(shard.context.groups)
            offset_count += len(shard.offsets)
            some = islice(shard.context.groups.groups(), MAX_GROUPS - len(groups))
            groups += [(group, shard.offsets) for group in some]
        return groups, group_count, offset_count

    def _lag(self, topic: str, partition: int, offset: int) -> int | None:
        try:
            replica = self._replicas.find(topic, partition)
        except KafkaError:
            return None
        return max(0, replica.high_watermark - offset)


def _partitions(rows: list[_Row]) -> Iterator[Step]:
    names = ("consumergroup", "partition", "topic")
    labels = []
    for row in rows:
        labels.append(label_text(tuple(zip(names, (row.group, str(row.partition), row.topic), strict=True))))
        yield None
    yield FamilyStart(f"{_EXPORTER}current_offset", "Committed offset of a group.")
    for row, text in zip(rows, labels, strict=True):
        yield text, row.offset
    yield FamilyStart(f"{_EXPORTER}lag", "Records between a group's committed offset and the high watermark.")
    for row, text in zip(rows, labels, strict=True):
        yield None if row.lag is None else (text, row.lag)
    yield FamilyStart(f"{_KMINION}partition_lag", "Lag of a group in one partition, in records.")
    names = ("group_id", "partition_id", "topic_name")
    for row in rows:
        values = (row.group, str(row.partition), row.topic)
        yield None if row.lag is None else (label_text(tuple(zip(names, values, strict=True))), row.lag)


def _topics(rows: list[_Row]) -> Iterator[Step]:
    sums: dict[tuple[str, str], _Sum] = {}
    for row in rows:
        sums.setdefault((row.group, row.topic), _Sum()).add(row)
        yield None
    yield FamilyStart(f"{_EXPORTER}current_offset_sum", "Sum of the committed offsets of a group in a topic.")
    for (group, topic), each in sums.items():
        yield label_text((("consumergroup", group), ("topic", topic))), each.offset
    yield FamilyStart(f"{_EXPORTER}lag_sum", "Lag of a group in a topic, in records.")
    for (group, topic), each in sums.items():
        yield None if each.lag is None else (label_text((("consumergroup", group), ("topic", topic))), each.lag)
    yield FamilyStart(f"{_KMINION}offset_sum", "Sum of the committed offsets of a group in a topic.")
    for (group, topic), each in sums.items():
        yield label_text((("group_id", group), ("topic_name", topic))), each.offset
    yield FamilyStart(f"{_KMINION}lag", "Lag of a group in a topic, in records.")
    for (group, topic), each in sums.items():
        yield None if each.lag is None else (label_text((("group_id", group), ("topic_name", topic))), each.lag)
