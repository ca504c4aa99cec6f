"""`spark.readStream.format("ottla")`: micro-batches between offsets in Spark's checkpoint.

Offsets are JSON as the connector writes it, `{topic: {partition: next offset}}`, so that its checkpoints can be
continued. The extra key `@ids` (a name that no topic can have) has the id of each topic: it reveals a topic that was
deleted and recreated, also after a restart.

**Invariants:** a batch is the records between its two offsets, in every run of it; an offset never skips a partition
that was not requested; the end of a batch is an end of partitions or a rate limit, so it is after transaction
markers, and a group that caught up has no lag. Offsets are committed to a group only after Spark has processed all
records below them. A failed commit is logged and stops nothing: the checkpoint is the source of truth.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.common.errors import OperatorError, OttlaError
from ottla.common.kafka.ids import uuid_to_string
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.datasource.offsets import (
    SourceCluster,
    cut,
    earliest,
    gathered,
    latest,
    positions,
    require_all,
    resolve,
    subscribed,
)
from ottla.pipeline.datasource.options import Bound, SourceOptions
from ottla.pipeline.datasource.records import OpenCluster
from ottla.pipeline.datasource.rows import RangePartition, RowReader
from ottla.pipeline.model.plan import SKIP_DATA_LOSS, DataLossError, OffsetRange

logger = logging.getLogger(__name__)

IDS = "@ids"
FEW_OFFSETS = 2_000
"""Maximum offsets of a task over several partitions: each task costs two Python workers and a transaction."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The next offset of each partition, and the ids of their topics; an id is missing if it is not known."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)

    def by_topic(self) -> dict[str, dict[str, int]]:
        """As the connector writes it, in a fixed order: Spark compares the text."""
        found: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            found.setdefault(topic, {})[str(partition)] = offset
        return found

    def to_json(self) -> dict[str, Any]:
        """With the ids, for the checkpoint."""
        return {**self.by_topic(), IDS: dict(sorted(self.ids.items()))}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        """Raises OperatorError for a value that is not an offset of this source or the connector."""
        try:
            offsets = {
                (topic, int(partition)): int(offset)
                for topic, partitions in value.items()
                if topic != IDS
                for partition, offset in partitions.items()
            }
            return cls(offsets, {str(topic): str(one) for topic, one in value.get(IDS, {}).items()})
        except (AttributeError, TypeError, ValueError):
            raise OperatorError(
                f"the checkpoint has offsets of another source: {str(value)[:200]}; give the query a checkpoint of "
                "its own"
            ) from None

    def without(self, topic: str) -> StreamOffset:
        """All offsets except those of a topic."""
        kept = {key: offset for key, offset in self.offsets.items() if key[0] != topic}
        return StreamOffset(kept, {name: one for name, one in self.ids.items() if name != topic})

    def same_topic(self, topic: str, other: StreamOffset) -> bool:
        """False if the ids show that the topic was recreated between both."""
        mine, theirs = self.ids.get(topic), other.ids.get(topic)
        return mine is None or theirs is None or mine == theirs


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The driver's part of one query, in a Python process of its own; pickled before its first request."""

    def __init__(
        self, options: SourceOptions, open_cluster: OpenCluster, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._open_cluster = open_cluster
        settings = (options.bootstrap_servers, options.client_id, options.timeout_s, options.security.settings)
        self._rows = RowReader(open_cluster, options.isolation, options.on_data_loss, options.include_headers, settings)
        self._now = now
        self._connected: Any = None
        self._target: StreamOffset | None = None
        """The end of a query that only reads the available records."""
        self._latest: StreamOffset | None = None
        self._epochs: dict[TopicPartition, int] = {}
        self._triggered_at = -math.inf
        self._in_group: Mapping[TopicPartition, int] | None = None

    # Offsets

    def initialOffset(self) -> dict[str, Any]:
        """Start of a new query. Raises OperatorError, KafkaError."""
        cluster = self._cluster()
        topics = subscribed(cluster, self._options.subscription)
        if not self._options.subscription.pattern:
            require_all(topics, self._options.subscription)
        ends = latest(cluster, positions(topics, self._options.subscription), self._options.isolation)
        starts = resolve(
            cluster, self._options.start or Bound(""), ends, self._options.isolation, self._options.no_match
        )
        return StreamOffset(starts, {name: uuid_to_string(one.topic_id) for name, one in topics.items()}).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """End of the next batch. Raises DataLossError, OperatorError, KafkaError."""
        begun = StreamOffset.from_json(start)
        self._commit_to_group(begun)  # Spark has processed all records below
        self._latest = self._target or self._ask_latest()
        begins = self._begins(begun, self._latest)
        ends = dict(self._latest.offsets)
        if not isinstance(limit, ReadAllAvailable):
            if self._is_to_wait(begins, ends):
                return start
            ends = limited(begins, ends, self._options.max_offsets_per_trigger)
        return StreamOffset(ends, self._latest.ids).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of the options; both of them apply if two are given."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the partitions as of the last trigger: minus `endOffset` this is the query's lag."""
        return self._latest.by_topic() if self._latest is not None else None

    def prepareForTriggerAvailableNow(self) -> None:
        """Use the present ends as the end of the query."""
        self._target = self._ask_latest()

    # Batches

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """The tasks of a batch, the same for the same offsets. Raises DataLossError, OperatorError, KafkaError."""
        begun, ended = StreamOffset.from_json(start), StreamOffset.from_json(end)
        for topic in self._made_again(ended):
            self._lose(f"topic {topic!r} was deleted before its batch was processed: its remaining records are lost")
            begun, ended = begun.without(topic), ended.without(topic)
        ids = {**self._ids(ended), **ended.ids}
        begins = self._begins(begun, ended)
        ranges = [
            OffsetRange(
                topic, ids[topic], partition, begins[topic, partition], offset, 0, self._epoch(topic, partition)
            )
            for (topic, partition), offset in ended.offsets.items()
            if topic in ids and (topic, partition) in begins
        ]
        least, most = self._options.min_partitions, self._options.max_records_per_partition
        few = 0 if least is not None else min(FEW_OFFSETS, most or FEW_OFFSETS)
        return [RangePartition(task) for task in gathered(cut(ranges, least, most), few)]

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range, in a worker."""
        return self._rows.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Called when Spark has processed all records below `end`."""
        self._commit_to_group(StreamOffset.from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        if self._connected is not None:
            self._connected.close()
            self._connected = None

    # Requests to the cluster

    def _cluster(self) -> SourceCluster:
        if self._connected is None:
            self._connected = self._open_cluster()
        return self._connected  # type: ignore[no-any-return]  # Cluster is its own context

    def _ask_latest(self) -> StreamOffset:
        cluster = self._cluster()
        topics = subscribed(cluster, self._options.subscription)
        found = latest(cluster, positions(topics, self._options.subscription), self._options.isolation)
        self._epochs = {key: info.leader_epoch for key, info in found.items()}
        return StreamOffset(
            {key: info.offset for key, info in found.items()},
            {name: uuid_to_string(one.topic_id) for name, one in topics.items()},
        )

    def _ids(self, offset: StreamOffset) -> dict[str, str]:
        """Ids of topics that have none in a checkpoint: the connector's checkpoints have no ids."""
        unknown = {topic for topic, _ in offset.offsets} - offset.ids.keys()
        if not unknown:
            return {}
        topics = subscribed(self._cluster(), self._options.subscription)
        return {name: uuid_to_string(topics[name].topic_id) for name in unknown & topics.keys()}

    def _made_again(self, ended: StreamOffset) -> list[str]:
        """The topics of a batch that were deleted or recreated: a checkpoint may have planned it long ago."""
        now = self._latest or self._ask_latest()
        return sorted(name for name, one in ended.ids.items() if now.ids.get(name) != one)

    def _epoch(self, topic: str, partition: int) -> int:
        return self._epochs.get((topic, partition), -1)

    def _begins(self, begun: StreamOffset, ended: StreamOffset) -> dict[TopicPartition, int]:
        """The offset at which each partition of `ended` resumes; a new partition starts at its first record."""
        for key in begun.offsets.keys() - ended.offsets.keys():
            self._lose(f"{_where(key)} does not exist any more; it was read up to offset {begun.offsets[key]}")
        for topic in sorted({topic for topic, _ in ended.offsets}):
            if not begun.same_topic(topic, ended):
                self._lose(
                    f"topic {topic!r} was deleted and created again (id {begun.ids[topic]}, now {ended.ids[topic]}): "
                    "unread records of the old topic are lost"
                )
        begins = {
            key: begun.offsets[key] for key in ended.offsets if key in begun.offsets and begun.same_topic(key[0], ended)
        }
        for key, begin in begins.items():
            if ended.offsets[key] < begin:
                self._lose(f"{_where(key)} was read up to offset {begin}, but ends at {ended.offsets[key]} now")
        fresh = [key for key in ended.offsets if key not in begins]
        firsts = earliest(self._cluster(), fresh)
        for key, first in firsts.items():
            if first and key[0] in begun.ids and begun.same_topic(key[0], ended):
                self._lose(
                    f"{_where(key)} is new and starts at offset {first}: records below it were deleted "
                    "before they were read"
                )
        return begins | firsts

    def _lose(self, what: str) -> None:
        if self._options.on_data_loss == "fail":
            raise DataLossError(f"{what}; {SKIP_DATA_LOSS} to continue with the remaining records")
        logger.warning("%s; failOnDataLoss is false: continuing with the remaining records", what)

    def _is_to_wait(self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
        """True if fewer offsets arrived than the minimum of a batch, and the maximum delay has not passed."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        new = sum(max(0, end - begins[key]) for key, end in ends.items())
        late = (self._now() - self._triggered_at) * 1000 >= self._options.max_trigger_delay_ms
        if new < least and not late:
            return True
        self._triggered_at = self._now()
        return False

    def _commit_to_group(self, done: StreamOffset) -> None:
        if self._options.group_id is None or done.offsets == self._in_group or not done.offsets:
            return
        self._in_group = done.offsets  # also when it fails: the next batch tries again
        try:
            self._cluster().groups.commit_offsets(self._options.group_id, done.offsets)
        except OttlaError as error:
            logger.warning("offsets were not committed to the group %r: %s", self._options.group_id, error)


def limited(
    begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int | None
) -> dict[TopicPartition, int]:
    """Ends of a batch of about `most` offsets, shared in proportion to the new offsets; every partition with new
    offsets gets some, as in the connector."""
    sizes = {key: end - begins[key] for key, end in ends.items() if end > begins[key]}
    total = sum(sizes.values())
    if most is None or total <= most:
        return dict(ends)
    shares = {key: max(1, most * size // total) for key, size in sizes.items()}
    return {key: begins[key] + shares[key] if key in shares else end for key, end in ends.items()}


def _where(key: TopicPartition) -> str:
    return f"topic {key[0]!r} partition {key[1]}"
