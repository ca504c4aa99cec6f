"""Series of each share partition that this broker leads, computed at a scrape (Kafka's SharePartitionMetrics).

A share partition has series while it is loaded, that is, while its group has members with sessions on this broker.

Left out, since a fetch reads and acquires its partitions in one step of the event loop, without locks: FetchLockTimeMs,
FetchLockRatio, TopicPartitionsAcquireTimeMs, RequestTopicPartitionsFetchRatio. The quotient of the two gauges is the
mean of InFlightBatchMessageCount.

Invariant: at most `MAX_SHARE_PARTITIONS` share partitions are exported, the oldest groups first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.metrics.series import FamilyStart, Step, label_text
from ottla.server.coordination.share_partitions import SharePartitions
from ottla.share.share_partition import SharePartition

MAX_SHARE_PARTITIONS = 10_000
"""Share partitions of a broker with series."""
_PREFIX = "kafka_server_sharepartitionmetrics_"

_FAMILIES: tuple[tuple[FamilyStart, Callable[[SharePartition], int]], ...] = (
    (
        FamilyStart(f"{_PREFIX}inflightmessagecount", "Offsets from the first unfinished record to the last acquired."),
        lambda each: each.end_offset - each.start_offset,
    ),
    (
        FamilyStart(f"{_PREFIX}inflightbatchcount", "Runs of these offsets with one state, as they are stored."),
        lambda each: len(each.in_flight()),
    ),
    (
        FamilyStart(
            f"{_PREFIX}acquisitionlocktimeout_total", "Records whose locks ended before an acknowledgement.", "counter"
        ),
        lambda each: each.expired_count,
    ),
)


def share_partition_series(partitions: SharePartitions) -> Iterator[Step]:
    """The families, one after the other."""
    everything = list(partitions.share_partitions())
    rows: list[tuple[str, SharePartition]] = []
    for led in everything[:MAX_SHARE_PARTITIONS]:
        if led.machine is not None:
            key, topic = led.key, led.partition.topic
            labels = (("group", key.group_id), ("partition", str(key.partition)), ("topic", topic))
            rows.append((label_text(labels), led.machine))
        yield None
    for start, value in _FAMILIES:
        yield start
        for text, machine in rows:
            yield text, value(machine)
    yield FamilyStart("ottla_metrics_share_partitions_omitted", "Share partitions without series, above the bound.")
    yield "", max(0, len(everything) - MAX_SHARE_PARTITIONS)
