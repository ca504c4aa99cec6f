"""Offset planning of `ottla group reset-offsets` and its dry run: converts a target into offsets within the logs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin.cluster import Cluster


class Target(NamedTuple):
    """The target of a reset: the option name without dashes, and its number (1 for a flag)."""

    kind: str
    value: int


class OffsetReset:
    """Plans offsets; `committed` are the committed offsets of the group."""

    def __init__(self, cluster: Cluster, committed: Mapping[TopicPartition, int]) -> None:
        self._records = cluster.records
        self._committed = committed

    def plan(self, positions: Sequence[TopicPartition], target: Target) -> dict[TopicPartition, int]:
        """The new offset of each position, within its log. Raises KafkaError for a shift without a committed offset."""
        from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

        firsts = self._records.offsets_at(positions, EARLIEST_TIMESTAMP)
        ends = self._records.offsets_at(positions, LATEST_TIMESTAMP)
        aims = self._aims(positions, target, firsts, ends)
        return {key: max(firsts[key], min(ends[key], aims[key])) for key in positions}

    def _aims(
        self,
        positions: Sequence[TopicPartition],
        target: Target,
        firsts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> Mapping[TopicPartition, int]:
        match target.kind:
            case "to_earliest":
                return firsts
            case "to_latest":
                return ends
            case "to_current":
                return {key: self._committed.get(key, ends[key]) for key in positions}
            case "to_offset":
                return dict.fromkeys(positions, target.value)
            case "to_datetime":
                return self._records.offsets_since(target.value, ends)
            case "by_duration":
                return self._records.offsets_since(max(0, int(time.time() * 1000) - target.value), ends)
            case _:
                return {key: self._current(key) + target.value for key in positions}

    def _current(self, key: TopicPartition) -> int:
        if key not in self._committed:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"--shift-by needs a committed offset, and {key[0]}-{key[1]} has none"
            )
        return self._committed[key]
