"""Series of each partition, computed at a scrape: Kafka's (`kafka_cluster_partition_*`, `kafka_log_log_*`) and
those of kafka_exporter and kminion.

Every replica has Kafka's series; those of a partition are 0 on followers, as in Apache Kafka. Only the leader exports
the series of the exporters, so that sums over all brokers are right. The leader of partition 0 exports the number of
partitions.

Invariant: at most `MAX_PARTITIONS` partitions are exported, those of the oldest topics first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, repeat
from typing import NamedTuple

from ottla.metadata.image import MetadataImage
from ottla.metrics.series import FamilyStart, Step, label_text
from ottla.replica.manager import ReplicaManager
from ottla.replica.partition import Partition

MAX_PARTITIONS = 10_000
"""Partitions of a broker with series of their own; about 17 series each."""
STEP_SEGMENTS = 50
"""The size of a log is a sum over its segments; so many count as one step of a scrape."""

_Value = Callable[[Partition], float]


class _Row(NamedTuple):
    """A replica on this broker."""

    labels: str
    partition: Partition
    size_bytes: int


def _needed(partition: Partition) -> int:
    return min(partition.log.config.min_insync_replicas, len(partition.state.replicas))


_OF_REPLICAS: tuple[tuple[str, str, _Value], ...] = (
    ("kafka_log_log_logstartoffset", "First offset of a replica.", lambda each: each.log.log_start_offset),
    ("kafka_log_log_logendoffset", "Offset of the next record of a replica.", lambda each: each.log.log_end_offset),
)
_OF_PARTITIONS: tuple[tuple[str, str, _Value], ...] = (
    (
        "kafka_cluster_partition_replicascount",
        "Replicas of a partition; 0 on followers.",
        lambda each: len(each.state.replicas),
    ),
    (
        "kafka_cluster_partition_insyncreplicascount",
        "In-sync replicas of a partition; 0 on followers.",
        lambda each: len(each.state.isr),
    ),
    (
        "kafka_cluster_partition_underreplicated",
        "1 on the leader of a partition with fewer in-sync replicas than replicas.",
        lambda each: len(each.state.isr) < len(each.state.replicas),
    ),
    (
        "kafka_cluster_partition_underminisr",
        "1 on the leader of a partition with fewer in-sync replicas than min.insync.replicas.",
        lambda each: len(each.state.isr) < _needed(each),
    ),
    (
        "kafka_cluster_partition_atminisr",
        "1 on the leader of a partition with exactly min.insync.replicas in-sync replicas.",
        lambda each: len(each.state.isr) == _needed(each),
    ),
)
_EXPORTER = "kafka_topic_partition_"
_OF_LEADERS: tuple[tuple[str, str, _Value], ...] = (
    (f"{_EXPORTER}current_offset", "High watermark of a partition.", lambda each: each.high_watermark),
    (f"{_EXPORTER}oldest_offset", "First offset of a partition.", lambda each: each.log.log_start_offset),
    (f"{_EXPORTER}in_sync_replica", "In-sync replicas of a partition.", lambda each: len(each.state.isr)),
    (f"{_EXPORTER}leader", "Broker id of the leader of a partition.", lambda each: each.state.leader_id),
    (
        f"{_EXPORTER}leader_is_preferred",
        "1 if the leader of a partition is its preferred (first) replica.",
        lambda each: each.state.replicas[:1] == (each.state.leader_id,),
    ),
    (f"{_EXPORTER}replicas", "Replicas of a partition.", lambda each: len(each.state.replicas)),
    (
        f"{_EXPORTER}under_replicated_partition",
        "1 if a partition has fewer in-sync replicas than replicas.",
        lambda each: len(each.state.isr) < len(each.state.replicas),
    ),
)
_WATER_MARKS: tuple[tuple[str, str, _Value], ...] = (
    ("low", "First offset of a partition.", lambda each: each.log.log_start_offset),
    ("high", "High watermark of a partition.", lambda each: each.high_watermark),
)


class PartitionSeries:
    """Collector of the partitions of one broker."""

    __slots__ = ("_image", "_node_id", "_replicas")

    def __init__(self, replicas: ReplicaManager, image: Callable[[], MetadataImage], node_id: int) -> None:
        self._replicas = replicas
        self._image = image
        self._node_id = node_id

    def __call__(self) -> Iterator[Step]:
        """The families, one after the other."""
        # References only, in one step: the dictionaries may change between steps.
        partitions = list(islice(self._replicas.partitions(), MAX_PARTITIONS))
        rows: list[_Row] = []
        for each in partitions:
            rows.append(_Row(f'{{partition="{each.index}",topic="{each.topic}"}}', each, each.log.size_bytes))
            yield from repeat(None, 1 + len(each.log.segments) // STEP_SEGMENTS)
        yield FamilyStart("kafka_log_log_size", "Bytes of the segments of a replica.")
        for row in rows:
            yield row.labels, row.size_bytes
        for name, text, value in _OF_REPLICAS:
            yield FamilyStart(name, text)
            for row in rows:
                yield row.labels, int(value(row.partition))
        for name, text, value in _OF_PARTITIONS:
            yield FamilyStart(name, text)
            for row in rows:
                yield row.labels, int(value(row.partition)) if row.partition.is_leader else 0
        for name, text, value in _OF_LEADERS:
            yield FamilyStart(name, text)
            for row in rows:
                yield (row.labels, int(value(row.partition))) if row.partition.is_leader else None
        yield from self._counts(partitions)
        yield from _sums_of_topics(rows, self._node_id)
        yield from _water_marks(rows)
        yield FamilyStart(
            "ottla_metrics_partitions_omitted", "Partitions without series of their own, above the bound."
        )
        yield "", max(0, self._replicas.partition_count() - MAX_PARTITIONS)

    def _counts(self, partitions: list[Partition]) -> Iterator[Step]:
        yield FamilyStart("kafka_topic_partitions", "Partitions of a topic, from the leader of partition 0.")
        for each in partitions:
            topic = self._image().topics.get(each.topic) if each.index == 0 and each.is_leader else None
            yield None if topic is None else (f'{{topic="{each.topic}"}}', len(topic.partitions))
        yield FamilyStart("kminion_kafka_topic_info", "1, with properties of a topic, from the leader of partition 0.")
        for each in partitions:
            topic = self._image().topics.get(each.topic) if each.index == 0 and each.is_leader else None
            yield None if topic is None else (_topic_info(each, len(topic.partitions)), 1)


def _topic_info(partition: Partition, partition_count: int) -> str:
    return label_text(
        (
            ("cleanup_policy", ",".join(sorted(partition.log.config.cleanup_policy))),
            ("partition_count", str(partition_count)),
            ("replication_factor", str(len(partition.state.replicas))),
            ("topic_name", partition.topic),
        )
    )


def _water_marks(rows: list[_Row]) -> Iterator[Step]:
    """First offsets and high watermarks with the labels of kminion, from the leader."""
    for name, text, value in _WATER_MARKS:
        yield FamilyStart(f"kminion_kafka_topic_partition_{name}_water_mark", text)
        for _, each, _ in rows:
            labels = f'{{partition_id="{each.index}",topic_name="{each.topic}"}}'
            yield (labels, int(value(each))) if each.is_leader else None


def _sums_of_topics(rows: list[_Row], node_id: int) -> Iterator[Step]:
    """Sums of kminion over the partitions of this broker."""
    watermarks: dict[str, int] = {}
    starts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for _, each, size_bytes in rows:
        sizes[each.topic] = sizes.get(each.topic, 0) + size_bytes
        if each.is_leader:
            watermarks[each.topic] = watermarks.get(each.topic, 0) + each.high_watermark
            starts[each.topic] = starts.get(each.topic, 0) + each.log.log_start_offset
        yield None
    yield FamilyStart("kminion_kafka_topic_high_water_mark_sum", "Sum of the high watermarks that this broker leads.")
    for topic, offset in watermarks.items():
        yield f'{{topic_name="{topic}"}}', offset
    yield FamilyStart("kminion_kafka_topic_low_water_mark_sum", "Sum of the first offsets that this broker leads.")
    for topic, offset in starts.items():
        yield f'{{topic_name="{topic}"}}', offset
    yield FamilyStart("kminion_kafka_topic_log_dir_size_total_bytes", "Bytes of a topic's replicas on this broker.")
    for topic, size in sizes.items():
        yield f'{{topic_name="{topic}"}}', size
    yield FamilyStart("kminion_kafka_broker_log_dir_size_total_bytes", "Bytes of the replicas on this broker.")
    yield f'{{broker_id="{node_id}"}}', sum(sizes.values())
