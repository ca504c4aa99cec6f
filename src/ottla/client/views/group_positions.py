"""Positions of groups: committed offsets, log ends, lag, and owners of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import LATEST_TIMESTAMP, CommittedOffset, GroupDescription, GroupMember
from ottla.common.kafka.topic_partition import TopicPartition


class GroupPosition(NamedTuple):
    """A partition with a committed offset or an owner."""

    topic: str
    partition: int
    committed: CommittedOffset | None
    end: int | None
    """High watermark; None if the partition does not exist or has no leader."""
    owner: GroupMember | None

    @property
    def offset(self) -> int | None:
        """The committed offset: that of the next record to read."""
        return None if self.committed is None else self.committed.offset

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end; None if one of them is unknown."""
        return _lag(self.offset, self.end)


class GroupPositions(NamedTuple):
    """A group and its positions, sorted by topic and partition."""

    group: GroupDescription
    positions: list[GroupPosition]


def group_positions(cluster: Cluster, group_id: str) -> GroupPositions:
    """Describe a group with the lag of each partition. Raises KafkaError GROUP_ID_NOT_FOUND."""
    found = cluster.groups.describe(group_id)
    committed = cluster.groups.offsets(group_id)
    owners: dict[TopicPartition, GroupMember] = {
        (topic, partition): member
        for member in found.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    keys = sorted({*committed, *owners})
    ends = log_ends(cluster, keys)
    return GroupPositions(
        found, [GroupPosition(*key, committed.get(key), ends.get(key), owners.get(key)) for key in keys]
    )


def total_lags(cluster: Cluster, group_ids: Iterable[str]) -> dict[str, int]:
    """Total lag of each group that has committed offsets of existing partitions."""
    names = list(group_ids)
    found = cluster.groups.offsets_of(names)
    committed = {name: found.get(name, {}) for name in names}
    ends = log_ends(cluster, {key for offsets in committed.values() for key in offsets})
    lags: dict[str, int] = {}
    for group_id, offsets in committed.items():
        behind = [_lag(each.offset, ends.get(key)) for key, each in offsets.items()]
        if known := [lag for lag in behind if lag is not None]:
            lags[group_id] = sum(known)
    return lags


def log_ends(cluster: Cluster, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """High watermarks; omits partitions that do not exist or have no leader."""
    existing = cluster.topics.all()
    known = [
        (topic, partition)
        for topic, partition in keys
        if topic in existing
        and partition < len(existing[topic].partitions)
        and existing[topic].partitions[partition].is_led
    ]
    return cluster.records.offsets_at(known, LATEST_TIMESTAMP)


def _lag(offset: int | None, end: int | None) -> int | None:
    return None if offset is None or end is None else max(0, end - offset)
