"""Committed offsets of groups, and their partitions. Metadata is requested for their topics only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.client.wire.connection import BrokerUnreachable
from ottla.client.wire.model import EARLIEST_TIMESTAMP, TopicInfo
from ottla.common.errors import KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.console.context import Context


def topics_of(context: Context, keys: Iterable[TopicPartition]) -> dict[str, TopicInfo]:
    """The topics of these partitions that exist, and that the user may see."""
    return context.cluster.topics.find(sorted({name for name, _ in keys}))


def existing_partitions(topics: Mapping[str, TopicInfo], keys: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Omits partitions that do not exist, have no leader, or belong to topics of other users."""
    return [
        (name, index)
        for name, index in keys
        if name in topics and index < len(topics[name].partitions) and topics[name].partitions[index].is_led
    ]


def committed_offsets(context: Context, group_ids: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Committed offsets of groups that the user may see; empty if a coordinator does not respond."""
    try:
        found = context.cluster.groups.offsets_of(group_ids)
    except (KafkaError, BrokerUnreachable):
        return {}
    return {name: {key: each.offset for key, each in offsets.items()} for name, offsets in found.items()}


def log_starts(context: Context, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """First offsets of existing partitions; empty if a leader does not respond."""
    wanted = list(keys)
    try:
        return context.cluster.records.offsets_at(wanted, EARLIEST_TIMESTAMP) if wanted else {}
    except (KafkaError, BrokerUnreachable):
        return {}
