"""`SimpleConsumer`: reads partitions at offsets that the caller manages, without state and group.

    with SimpleConsumer("localhost:9092") as consumer:
        fetched = consumer.fetch("views", 0, consumer.earliest("views", 0))

Built on Ottla's own client: one request covers many partitions of one broker. Each response has its own memory, which
is never overwritten. Thread-safe: calls are serialized.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.api.settings import Config
from ottla.api.tool_client import ToolClient
from ottla.client.admin.records import DEFAULT_FETCH_BYTES
from ottla.client.librdkafka.consumer import ConsumedRecord, read_batches
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, FetchResult
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

READ_UNCOMMITTED = "read_uncommitted"
MAX_OFFSETS = 2**31 - 1
"""Maximum of one call of `get_offsets_before`, by the size of the request."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of a fetch of one partition; `next_offset` is the next offset to fetch."""

    records: tuple[ConsumedRecord, ...]
    next_offset: int
    high_watermark: int
    log_start_offset: int


class SimpleConsumer(ToolClient):
    """See the module. A context manager that closes its connections."""

    LATEST_TIME = LATEST_TIMESTAMP
    EARLIEST_TIME = EARLIEST_TIMESTAMP

    what = "consumer"

    def __init__(
        self, bootstrap_servers: str, config: Config | None = None, *, isolation: str = READ_UNCOMMITTED
    ) -> None:
        """Connects later. `isolation` is read_uncommitted or read_committed. Raises KafkaError INVALID_CONFIG."""
        super().__init__(bootstrap_servers, config)
        self._isolation = isolation

    # Records

    def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int = DEFAULT_FETCH_BYTES, max_wait_ms: int = 500
    ) -> Fetched:
        """The records from `offset`, of about `max_bytes`; empty if there are none within `max_wait_ms`.

        Returns at least one batch of any size (KIP-74). Retriable errors are retried for `default.api.timeout.ms`.
        Raises KafkaError, such as OFFSET_OUT_OF_RANGE and UNKNOWN_TOPIC_OR_PARTITION.
        """
        with self._asking() as cluster:
            result = cluster.records.fetch(
                topic,
                partition,
                offset,
                max_bytes=max_bytes,
                max_wait_ms=max_wait_ms,
                isolation=self._isolation,
            )
        return _fetched((topic, partition), offset, result)

    def fetch_many(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        max_bytes: int = DEFAULT_FETCH_BYTES,
        max_wait_ms: int = 500,
    ) -> dict[TopicPartition, Fetched | KafkaError]:
        """The result of `fetch` or its error for each partition, with one request per leader.

        Nothing is retried. Raises KafkaError if the cluster is unreachable.
        """
        topics = {topic for topic, _ in offsets}
        with self._asking() as cluster:
            ids = {topic: cluster.topics.get(topic).topic_id for topic in sorted(topics)}
            results = cluster.records.fetch_several(
                offsets, max_bytes=max_bytes, max_wait_ms=max_wait_ms, isolation=self._isolation, topic_ids=ids
            )
        return {
            key: result if isinstance(result, KafkaError) else _fetched(key, offsets[key], result)
            for key, result in results.items()
        }

    # Offsets

    def earliest(self, topic: str, partition: int) -> int:
        """The log start offset. Raises KafkaError."""
        return self._offset((topic, partition), EARLIEST_TIMESTAMP)

    def latest(self, topic: str, partition: int) -> int:
        """The end offset at the isolation level of this consumer."""
        return self._offset((topic, partition), LATEST_TIMESTAMP)

    def youngest(self, topic: str, partition: int) -> int | None:
        """The offset of the record with the largest timestamp (KIP-734); None in an empty partition."""
        found = self._offset((topic, partition), MAX_TIMESTAMP)
        return None if found < 0 else found

    def offsets_for_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset with a timestamp at or after the given one, for each partition; None if there is none.

        Raises KafkaError, INVALID_REQUEST for a negative time.
        """
        for key, timestamp in timestamps_ms.items():
            if timestamp < 0:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"invalid time in milliseconds: {timestamp} for {key[0]}-{key[1]}; use earliest() or latest() for "
                    "the ends of the log",
                )
        with self._asking() as cluster:
            found = cluster.records.list_offsets(timestamps_ms, isolation=self._isolation)
        return {key: None if info.offset < 0 else info.offset for key, info in found.items()}

    def get_offsets_before(self, topic: str, partition: int, time_ms: int, max_count: int) -> list[int]:
        """Offsets at which reading can start, by the time when they were written: at most `max_count`, descending.

        They are the base offsets of segments that were last written at or before `time_ms`, and for the current time
        the end. LATEST_TIME starts with the end, EARLIEST_TIME returns only the first. Coarse, and independent of the
        isolation level: use `offsets_for_times` for timestamps of records. Raises KafkaError, UNSUPPORTED_VERSION for
        Apache Kafka 4.0 and later, which has removed it (KIP-896).
        """
        if time_ms < 0 and time_ms not in (self.LATEST_TIME, self.EARLIEST_TIME):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"invalid time in milliseconds: {time_ms}")
        if not 0 < max_count <= MAX_OFFSETS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"max_count must be from 1 to {MAX_OFFSETS}, not {max_count}")
        key = (topic, partition)
        with self._asking() as cluster:
            return cluster.records.offsets_before({key: time_ms}, max_count)[key]

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """First offset and end offset of each partition."""
        keys = list(partitions)
        with self._asking() as cluster:
            first = cluster.records.offsets_at(keys, EARLIEST_TIMESTAMP, isolation=self._isolation)
            last = cluster.records.offsets_at(keys, LATEST_TIMESTAMP, isolation=self._isolation)
        return {key: (first[key], last[key]) for key in keys}

    def partitions(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
        with self._asking() as cluster:
            return [(topic, each.index) for each in cluster.topics.get(topic).partitions]

    def _offset(self, key: TopicPartition, timestamp: int) -> int:
        with self._asking() as cluster:
            return cluster.records.offsets_at([key], timestamp, isolation=self._isolation)[key]


def _fetched(key: TopicPartition, offset: int, result: FetchResult) -> Fetched:
    records: list[ConsumedRecord] = []
    following = offset
    for position, seen in read_batches(key, result, offset):
        records += seen
        following = position
    return Fetched(tuple(records), following, result.high_watermark, result.log_start_offset)
