"""Committed offsets and log ends of groups, with the metadata that the session has already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.wire.connection import BrokerUnreachable
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicInfo
from ottla.common.errors import KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.console.context import Context


def existing_partitions(topics: Mapping[str, TopicInfo], keys: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Omits partitions that do not exist, have no leader, or belong to topics of other users."""
    return [
        (name, index)
        for name, index in keys
        if name in topics and index < len(topics[name].partitions) and topics[name].partitions[index].is_led
    ]


def log_ends(context: Context, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """High watermarks of the existing partitions."""
    known = existing_partitions(context.topics(), keys)
    return context.cluster.records.offsets_at(known, LATEST_TIMESTAMP) if known else {}


def committed_offsets(context: Context, group_id: str) -> dict[TopicPartition, int]:
    """Committed offsets of a group. Raises KafkaError."""
    return {key: each.offset for key, each in context.cluster.groups.offsets(group_id).items()}


def log_starts(context: Context, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """First offsets of existing partitions; empty if a leader does not respond."""
    wanted = list(keys)
    try:
        return context.cluster.records.offsets_at(wanted, EARLIEST_TIMESTAMP) if wanted else {}
    except (KafkaError, BrokerUnreachable):
        return {}
