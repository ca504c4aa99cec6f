"""The searched topic: offsets and raw batches of its partitions, from any Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, FetchResult, KeyFreeRange
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import uuid_to_string
from ottla.common.platform.reused_memory import ReusedMemory

FETCH_BYTES = 4 * 1024 * 1024
"""Largest size of a fetch, apart from a larger batch."""
FETCH_WAIT_MS = 50
"""The records below a fixed end exist already, so there is nothing to wait for."""


class TopicSource(Protocol):
    """One topic at one isolation level. All methods raise KafkaError."""

    @property
    def topic_id(self) -> str | None:
        """The id of the topic, None for clusters without topic ids."""

    def partitions(self) -> Sequence[int]:
        """All partitions."""

    def start_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        """The log start offsets."""

    def end_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        """The end offsets, or the last stable offsets under committed isolation."""

    def offsets_since(self, timestamp_ms: int, ends: Mapping[int, int]) -> dict[int, int]:
        """The first offset with a timestamp at or after a time; the end where there is none."""

    def ranges_without_keys(
        self, ranges: Mapping[int, tuple[int, int]], keys: Sequence[bytes]
    ) -> Mapping[int, Sequence[KeyFreeRange]]:
        """Parts of ranges of offsets in which no record has one of the keys, as far as the broker knows them."""

    def fetch(self, partition: int, offset: int, max_bytes: int) -> FetchResult:
        """Raw batches from the one with this offset; at least one if there is one.

        The next fetch may overwrite them.
        """


class ClusterTopic:
    """A topic of a cluster; `isolation` is committed or uncommitted."""

    def __init__(self, cluster: Cluster, topic: str, isolation: str) -> None:
        """Raises KafkaError, TopicNotFound."""
        self._records = cluster.records
        self._topic = topic
        self._isolation = f"read_{isolation}"
        info = cluster.topics.get(topic)
        self._partitions = [each.index for each in info.partitions]
        self._topic_id = info.topic_id
        self._is_checked = info.topic_id is not None
        """Whether a fetch names the topic id, so that another topic of this name is not read."""
        self._memory = ReusedMemory()

    @property
    def topic_id(self) -> str | None:
        return None if self._topic_id is None else uuid_to_string(self._topic_id)

    def partitions(self) -> Sequence[int]:
        return self._partitions

    def start_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        return self._offsets(partitions, EARLIEST_TIMESTAMP)

    def end_offsets(self, partitions: Iterable[int]) -> dict[int, int]:
        return self._offsets(partitions, LATEST_TIMESTAMP)

    def offsets_since(self, timestamp_ms: int, ends: Mapping[int, int]) -> dict[int, int]:
        keyed = {(self._topic, partition): end for partition, end in ends.items()}
        found = self._records.offsets_since(timestamp_ms, keyed, isolation=self._isolation) if keyed else {}
        return {partition: offset for (_, partition), offset in found.items()}

    def ranges_without_keys(
        self, ranges: Mapping[int, tuple[int, int]], keys: Sequence[bytes]
    ) -> Mapping[int, Sequence[KeyFreeRange]]:
        keyed = {(self._topic, partition): span for partition, span in ranges.items()}
        found = self._records.ranges_without_keys(keyed, keys, isolation=self._isolation)
        return {partition: each for (_, partition), each in found.items()}

    def fetch(self, partition: int, offset: int, max_bytes: int) -> FetchResult:
        topic_id = self._topic_id if self._is_checked else None
        try:
            return self._records.fetch(
                self._topic,
                partition,
                offset,
                max_bytes=max_bytes,
                max_wait_ms=FETCH_WAIT_MS,
                isolation=self._isolation,
                topic_id=topic_id,
                memory=self._memory,
            )
        except KafkaError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION or topic_id is None:
                raise
        self._is_checked = False  # Apache Kafka before 3.1 fetches by name
        return self.fetch(partition, offset, max_bytes)

    def _offsets(self, partitions: Iterable[int], timestamp: int) -> dict[int, int]:
        keys = [(self._topic, partition) for partition in partitions]
        found = self._records.offsets_at(keys, timestamp, isolation=self._isolation) if keys else {}
        return {partition: offset for (_, partition), offset in found.items()}
