"""`FlowMeter`: the samples behind the rates of topics and groups, shared by all sessions of the process.

A session reads only offsets that its user may see; the samples before them may be those of another session.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from ottla.client.views.rates import (
    CommitKey,
    MeterLimits,
    PartitionKey,
    RateMeter,
    commit_rates,
    partition_keys,
    partition_rates,
    sum_known,
)
from ottla.client.wire.model import TopicInfo
from ottla.common.kafka.topic_partition import TopicPartition

LIMITS = MeterLimits(max_keys=50_000, min_interval_s=1.0, max_interval_s=120.0)
"""Bounds of the samples of end offsets, and of those of sizes."""
COMMIT_LIMITS = LIMITS._replace(min_interval_s=10.0)
"""Consumers commit every few seconds (auto.commit.interval.ms), so rates of shorter times would jump."""
MAX_PARTITIONS = 2_000
"""Partitions that one reading asks for."""


class FlowMeter:
    """Rates since the samples before, by partition and group. Used by several threads."""

    def __init__(self) -> None:
        self._ends: RateMeter[PartitionKey] = RateMeter(LIMITS)
        self._sizes: RateMeter[PartitionKey] = RateMeter(LIMITS)
        self._commits: RateMeter[CommitKey] = RateMeter(COMMIT_LIMITS)
        self._turn = Turn(LIMITS.min_interval_s)
        self._lock = threading.Lock()

    def record_rates(
        self, topics: Iterable[TopicInfo], ends: Mapping[TopicPartition, int], now_s: float
    ) -> dict[TopicPartition, float | None]:
        """Records per second of the partitions in `ends`."""
        with self._lock:
            return partition_rates(self._ends, topics, ends, now_s)

    def byte_rates(
        self, topics: Iterable[TopicInfo], sizes: Mapping[TopicPartition, int], now_s: float
    ) -> dict[TopicPartition, float | None]:
        """Bytes per second of the partitions in `sizes`; None if their logs got smaller."""
        with self._lock:
            return partition_rates(self._sizes, topics, sizes, now_s)

    def commit_rates(
        self, group_id: str, offsets: Mapping[TopicPartition, int], now_s: float
    ) -> dict[TopicPartition, float | None]:
        """Records per second that a group consumes."""
        with self._lock:
            return commit_rates(self._commits, group_id, offsets, now_s)

    def known_rates(self, topic: TopicInfo, now_s: float) -> tuple[float | None, float | None]:
        """The latest records and bytes per second of a topic; None without a recent reading."""
        keys = partition_keys(topic)
        with self._lock:
            records, sizes = ([meter.latest(key, now_s) for key in keys] for meter in (self._ends, self._sizes))
        return sum_known(records), sum_known(sizes)

    def choose(self, topics: Mapping[str, TopicInfo], busiest: Sequence[str], now_s: float) -> list[TopicPartition]:
        """The partitions of the next reading of an overview, at most MAX_PARTITIONS.

        The busiest topics get up to half of them; the others have their turn by name. A topic is read as a whole,
        unless it alone is too large.
        """
        chosen: list[TopicPartition] = []
        taken = set()
        for name in busiest:
            keys = led_partitions(topics[name])
            if len(chosen) + len(keys) <= MAX_PARTITIONS // 2:
                chosen += keys
                taken.add(name)
        with self._lock:
            is_first, last = True, ""
            for name in self._turn.order(topics):
                keys = [] if name in taken else led_partitions(topics[name])
                room = MAX_PARTITIONS - len(chosen)
                if len(keys) > room and not is_first:
                    break
                chosen += keys[:room]
                is_first, last = is_first and not keys, name
            self._turn.end(last, now_s)
        return chosen


def led_partitions(topic: TopicInfo) -> list[TopicPartition]:
    """The partitions of a topic that have a leader."""
    return [(topic.name, each.index) for each in topic.partitions if each.is_led]


class Turn:
    """Goes through names in parts. Each part is read again after `min_s`, since a rate needs two readings."""

    def __init__(self, min_s: float) -> None:
        self._min_s = min_s
        self._last = ""
        self._begun_s: float | None = None

    def order(self, names: Iterable[str]) -> list[str]:
        """The names, beginning with the present part."""
        ordered = sorted(names)
        start = bisect_right(ordered, self._last)
        return [*ordered[start:], *ordered[:start]]

    def end(self, last: str, now_s: float) -> None:
        """A reading of this part ended with the name `last`."""
        if self._begun_s is None or now_s - self._begun_s > LIMITS.max_interval_s:
            self._begun_s = now_s
        elif now_s - self._begun_s >= self._min_s:
            self._last, self._begun_s = last, None
