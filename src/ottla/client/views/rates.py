"""Rates of offsets and sizes from consecutive readings, for `ottla top` and `ottla console`.

A rate is the difference of two readings of the same partition by the time between them, so it works with every Kafka.
Until the second reading it is None.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from ottla.client.wire.model import TopicInfo
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.topic_partition import TopicPartition

K = TypeVar("K", bound=Hashable)


class OffsetSample(NamedTuple):
    """An offset, or a size in bytes, at a time of a monotonic clock."""

    time_s: float
    offset: int


def rate_per_s(before: OffsetSample | None, now: OffsetSample | None) -> float | None:
    """Records (or bytes) per second between two samples.

    None without two samples at different times, and for an offset that fell: the partition was truncated or created
    again, so the difference is not traffic.
    """
    if before is None or now is None or now.time_s <= before.time_s or now.offset < before.offset:
        return None
    return (now.offset - before.offset) / (now.time_s - before.time_s)


def sum_known(values: Iterable[float | None]) -> float | None:
    """The sum of the known values; None if there is none."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def catch_up_s(lag: int | None, consumed_per_s: float | None, produced_per_s: float | None) -> float | None:
    """Seconds until a group reaches the log ends at the present rates; None if it does not, or a rate is unknown."""
    if lag is None or consumed_per_s is None or produced_per_s is None:
        return None
    if lag == 0:
        return 0.0
    gain = consumed_per_s - produced_per_s
    return lag / gain if gain > 0 else None


class MeterLimits(NamedTuple):
    """Bounds of a `RateMeter`: keys, and seconds between the two samples of a rate."""

    max_keys: int | None = None
    """The least recently sampled key is dropped; None keeps all."""
    min_interval_s: float = 0.0
    """A sample that comes earlier is ignored, and the latest rate returned."""
    max_interval_s: float = float("inf")
    """Samples that are older are ignored, and their rates are outdated."""


UNLIMITED = MeterLimits()


class RateMeter(Generic[K]):
    """Rates by key; remembers the latest sample and rate of each. Not thread-safe."""

    def __init__(self, limits: MeterLimits = UNLIMITED) -> None:
        self._limits = limits
        self._latest: OrderedDict[K, tuple[OffsetSample, float | None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._latest)

    def measure(self, key: K, sample: OffsetSample) -> float | None:
        """The rate since the sample before, which this one replaces."""
        before, rate = self._latest.get(key, (None, None))
        age_s = float("inf") if before is None else sample.time_s - before.time_s
        if age_s < self._limits.min_interval_s:
            return rate
        rate = rate_per_s(before, sample) if age_s <= self._limits.max_interval_s else None
        self._latest[key] = (sample, rate)
        self._latest.move_to_end(key)
        if self._limits.max_keys is not None and len(self._latest) > self._limits.max_keys:
            self._latest.popitem(last=False)
        return rate

    def latest(self, key: K, now_s: float) -> float | None:
        """The latest rate, unless it is outdated."""
        found = self._latest.get(key)
        return None if found is None or now_s - found[0].time_s > self._limits.max_interval_s else found[1]

    def retain(self, is_kept: Callable[[K], bool]) -> None:
        """Forget all other keys."""
        for key in [key for key in self._latest if not is_kept(key)]:
            del self._latest[key]


PartitionKey = tuple[Uuid, str, int]
"""Id and name of a topic (brokers before 2.8 report no ids), and partition. A topic that is created again differs."""


def partition_keys(topic: TopicInfo) -> list[PartitionKey]:
    """The keys of all partitions of a topic."""
    return [(topic.topic_id, topic.name, partition.index) for partition in topic.partitions]


def partition_rates(
    meter: RateMeter[PartitionKey], topics: Iterable[TopicInfo], values: Mapping[TopicPartition, int], now_s: float
) -> dict[TopicPartition, float | None]:
    """The rates of the partitions that `values` (offsets or sizes) has.

    A partition whose leader did not respond keeps its sample: the next rate covers that time too.
    """
    return {
        (name, index): meter.measure((topic_id, name, index), OffsetSample(now_s, values[name, index]))
        for topic in topics
        for topic_id, name, index in partition_keys(topic)
        if (name, index) in values
    }


class GroupRates(NamedTuple):
    """Lag of a group in records, and its rates in records per second; None where unknown."""

    lag: int | None
    consumed_per_s: float | None
    """Records per second by which the committed offsets advance."""
    produced_per_s: float | None
    """Records per second written to the partitions of the group."""
    catch_up_s: float | None


CommitKey = tuple[str, TopicPartition]
"""Group and partition."""


def commit_rates(
    meter: RateMeter[CommitKey], group_id: str, offsets: Mapping[TopicPartition, int], now_s: float
) -> dict[TopicPartition, float | None]:
    """Records per second by which the committed offset of each partition advances."""
    return {key: meter.measure((group_id, key), OffsetSample(now_s, offset)) for key, offset in offsets.items()}


def group_rates(
    offsets: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    produced: Mapping[TopicPartition, float | None],
    consumed: Mapping[TopicPartition, float | None],
) -> GroupRates:
    """The sums over the partitions with committed offsets; the lag counts those whose end is known."""
    lags = [max(0, ends[key] - offset) for key, offset in offsets.items() if key in ends]
    lag = sum(lags) if lags else None
    consumed_per_s = sum_known(consumed.values())
    produced_per_s = sum_known(produced.get(key) for key in offsets)
    return GroupRates(lag, consumed_per_s, produced_per_s, catch_up_s(lag, consumed_per_s, produced_per_s))
