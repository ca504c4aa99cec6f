"""Lag of groups: committed offsets and log ends. Metadata is requested for their topics only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.wire.model import LATEST_TIMESTAMP
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.console.context import Context


def log_ends(context: Context, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """High watermarks; omits partitions that do not exist, have no leader, or belong to topics of other users."""
    wanted = list(keys)
    topics = context.cluster.topics.find(sorted({name for name, _ in wanted}))
    known = [
        (name, index)
        for name, index in wanted
        if name in topics and index < len(topics[name].partitions) and topics[name].partitions[index].is_led
    ]
    return context.cluster.records.offsets_at(known, LATEST_TIMESTAMP) if known else {}


def committed_offsets(context: Context, group_id: str) -> dict[TopicPartition, int]:
    """Committed offsets of a group. Raises KafkaError."""
    return {key: each.offset for key, each in context.cluster.groups.offsets(group_id).items()}


def total_lags(context: Context, group_ids: Iterable[str]) -> dict[str, int | None]:
    """The lag of each group; None where nothing is committed, or the user may not see it."""
    names = list(group_ids)
    found = context.cluster.groups.offsets_of(names)
    committed = {name: {key: each.offset for key, each in found.get(name, {}).items()} for name in names}
    ends = log_ends(context, {key for offsets in committed.values() for key in offsets})
    return {group_id: total_lag(offsets, ends) for group_id, offsets in committed.items()}


def total_lag(committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int | None:
    """The sum over partitions whose end is known; None without any."""
    behind = [max(0, ends[key] - offset) for key, offset in committed.items() if key in ends]
    return sum(behind) if behind else None
