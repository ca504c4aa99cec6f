"""Offset ranges of a batch query, decided once for all its uses, and their restriction by a filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ottla.client.wire.model import NO_OFFSET, OffsetInfo
from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import uuid_to_string
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.datasource.bounds import UNBOUNDED, Bounds
from ottla.pipeline.datasource.offsets import (
    SourceCluster,
    earliest,
    latest,
    positions,
    require_all,
    resolve,
    subscribed,
)
from ottla.pipeline.datasource.options import Bound, SourceOptions
from ottla.pipeline.model.plan import SKIP_DATA_LOSS, DataLossError, OffsetRange


def plan_ranges(cluster: SourceCluster, options: SourceOptions, wanted: Bounds) -> list[OffsetRange]:
    """The offsets of each partition for a batch query. Raises OperatorError, DataLossError, KafkaError."""
    topics = subscribed(cluster, options.subscription)
    require_all(topics, options.subscription)
    keys = positions(topics, options.subscription)
    now = latest(cluster, keys, options.isolation)
    starts = resolve(cluster, options.start or Bound(""), now, options.isolation, options.no_match)
    ends = {key: info.offset for key, info in now.items()}
    if options.end is not None:
        ends = resolve(cluster, options.end, now, options.isolation, "latest")
    starts, ends = _checked(cluster, options, starts, ends, now)
    ids = {name: uuid_to_string(topic.topic_id) for name, topic in topics.items()}
    ranges = [
        OffsetRange(key[0], ids[key[0]], key[1], starts[key], ends[key], 0, now[key].leader_epoch) for key in keys
    ]
    return bounded_ranges(cluster, options.isolation, ranges, wanted)


def _checked(
    cluster: SourceCluster,
    options: SourceOptions,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    now: Mapping[TopicPartition, OffsetInfo],
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Both ends within the log; missing offsets are reported, or skipped if failOnDataLoss is false."""
    firsts = earliest(cluster, now)
    checked_starts, checked_ends = dict(starts), dict(ends)
    for key, start in starts.items():
        where, log_end = f"topic {key[0]!r} partition {key[1]}", now[key].offset
        if start > ends[key]:
            raise OperatorError(f"{where}: the read would start at offset {start} and end before it, at {ends[key]}")
        missing = ""
        if start < firsts[key] and ends[key] > start:
            missing = f"offset {start} is gone, the log starts at {firsts[key]}"
        elif max(start, ends[key]) > log_end:
            missing = f"offset {max(start, ends[key])} does not exist yet, the partition ends at {log_end}"
        if missing and options.on_data_loss == "fail":
            raise DataLossError(f"{where}: {missing}; {SKIP_DATA_LOSS} to read the remaining records")
        checked_ends[key] = min(ends[key], log_end)
        checked_starts[key] = min(max(start, firsts[key]), max(checked_ends[key], 0))
    return checked_starts, checked_ends


def bounded_ranges(
    cluster: SourceCluster, isolation: str, ranges: Iterable[OffsetRange], wanted: Bounds
) -> list[OffsetRange]:
    """The parts of ranges that can have wanted rows. Raises KafkaError."""
    least, greatest = wanted.range_of("offset")
    kept = [
        replace(one, start_offset=max(one.start_offset, least), end_offset=min(one.end_offset, greatest + 1))
        for one in ranges
        if wanted.admits(one.topic, one.partition)
    ]
    kept = [one for one in kept if one.offsets > 0]
    from_microsecond, to_microsecond = wanted.ranges.get("timestamp", UNBOUNDED)
    if from_microsecond > to_microsecond:
        return []
    from_ms = -(-from_microsecond // 1000)
    if from_ms <= 0 or not kept:
        return kept
    found = cluster.records.list_offsets({(one.topic, one.partition): from_ms for one in kept}, isolation=isolation)
    bounded = []
    for one in kept:
        first = found[one.topic, one.partition].offset
        if first != NO_OFFSET:  # else the partition has no record of that time or later
            bounded.append(replace(one, start_offset=max(one.start_offset, first)))
    return [one for one in bounded if one.offsets > 0]
