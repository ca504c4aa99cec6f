"""Records and offsets of partitions: the request DeleteRecords, and the service `Cluster.records`.

See `client.admin.topics`; the requests that read are in `client.wire.record_requests`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.client.admin.router import ClusterService, request_timeout_s
from ottla.client.wire import record_requests
from ottla.client.wire.connection import BrokerUnreachable, Connection
from ottla.client.wire.failure import TopicReplaced, raise_all, response_error
from ottla.client.wire.model import NO_OFFSET, FetchResult, KeyFreeRange, OffsetInfo
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.registry import ApiKey

if TYPE_CHECKING:
    from ottla.common.platform.reused_memory import ReusedMemory

DEFAULT_FETCH_BYTES = 8 * 1024 * 1024

_UNDELETED: Mapping[int, str] = {
    ErrorCode.POLICY_VIOLATION: "records are deleted only where cleanup.policy has delete in it: add it for as long as "
    "that takes",
}
"""Reasons for records that were not deleted: the response has no messages."""


def delete_records(
    connection: Connection, offsets: Mapping[TopicPartition, int], timeout_ms: int
) -> dict[TopicPartition, int]:
    """DeleteRecords below these offsets (-1: the high watermark), for partitions that this broker leads.

    Returns the new log start offsets. Raises KafkaError that lists each failed partition.
    """
    wanted: dict[str, list[DeleteRecordsPartition]] = {}
    for (name, index), offset in offsets.items():
        wanted.setdefault(name, []).append(DeleteRecordsPartition(partition_index=index, offset=offset))
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=found) for name, found in wanted.items()],
        timeout_ms=timeout_ms,
    )
    response: DeleteRecordsResponse = connection.request(
        ApiKey.DELETE_RECORDS, request, timeout_s=request_timeout_s(timeout_ms)
    )
    starts: dict[TopicPartition, int] = {}
    failures: list[KafkaError] = []
    for topic in response.topics:
        for result in topic.partitions:
            if result.error_code:
                why, place = _UNDELETED.get(result.error_code), f"{topic.name}-{result.partition_index}"
                failures.append(response_error(result.error_code, place, why))
            starts[topic.name, result.partition_index] = result.low_watermark
    raise_all(failures)
    return starts


class RecordService(ClusterService):
    """Records and offsets of partitions, from their leaders."""

    def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], *, isolation: str = "read_uncommitted"
    ) -> dict[tuple[str, int], OffsetInfo]:
        """The first offset with a timestamp at or after the given one, or a special offset, for each partition.

        `timestamps` maps (topic, partition) to milliseconds or EARLIEST_, LATEST_, MAX_TIMESTAMP. Raises TopicNotFound,
        KafkaError.
        """
        isolation_level = record_requests.isolation_level(isolation)
        return self._router.ask_leaders(
            timestamps, lambda connection, asked: record_requests.list_offsets(connection, asked, isolation_level)
        )

    def offsets_at(
        self, keys: Iterable[TopicPartition], timestamp: int, *, isolation: str = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """The same offsets of several partitions for one timestamp."""
        found = self.list_offsets(dict.fromkeys(keys, timestamp), isolation=isolation)
        return {key: info.offset for key, info in found.items()}

    def offsets_since(
        self, timestamp_ms: int, ends: Mapping[TopicPartition, int], *, isolation: str = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """The first offset at or after a time, for each partition of `ends`; its end if there is none."""
        found = self.offsets_at(ends, timestamp_ms, isolation=isolation)
        return {key: ends[key] if offset == NO_OFFSET else offset for key, offset in found.items()}

    def ranges_without_keys(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], keys: Sequence[bytes], *, isolation: str
    ) -> dict[TopicPartition, list[KeyFreeRange]]:
        """Parts of these ranges of offsets (end exclusive) in which no record has one of the keys.

        They come from key filters of Ottla (`ottla.search.index`), and are empty without. Raises TopicNotFound,
        KafkaError.
        """
        isolation_level = record_requests.isolation_level(isolation)
        found: dict[TopicPartition, list[KeyFreeRange]] = {key: [] for key in ranges}
        ends = {key: end for key, (_, end) in ranges.items()}
        starts = {key: start for key, (start, end) in ranges.items() if start < end}
        while starts:
            answers = self._router.ask_leaders(
                starts,
                lambda connection, asked: record_requests.ranges_without_keys(
                    connection, asked, ends, keys, isolation_level
                ),
            )
            rest = {}
            for key, answer in answers.items():
                if answer is not None:
                    found[key] += answer.ranges
                    if starts[key] < answer.searched_end < ends[key]:
                        rest[key] = answer.searched_end
            starts = rest
        return found

    def offsets_before(
        self, timestamps: Mapping[TopicPartition, int], max_count: int
    ) -> dict[TopicPartition, list[int]]:
        """At most `max_count` offsets per partition, by segment time; see `record_requests.offsets_before`."""
        return self._router.ask_leaders(
            timestamps, lambda connection, asked: record_requests.offsets_before(connection, asked, max_count)
        )

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The end offset of a leader epoch for each partition; NO_OFFSET if it is unknown.

        A larger offset that was read in this epoch or an earlier one has been truncated since (KIP-320). Raises
        TopicNotFound, KafkaError.
        """
        return self._router.ask_leaders(epochs, record_requests.epoch_ends)

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = DEFAULT_FETCH_BYTES,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        isolation: str = "read_uncommitted",
        topic_id: Uuid | None = None,
        memory: ReusedMemory | None = None,
    ) -> FetchResult:
        """Stored batches from `offset`, raw; empty if there are none within `max_wait_ms`.

        Returns at least one complete batch, even if it is larger than `max_bytes` (KIP-74). With `topic_id`, another
        topic of the same name is not read. With `memory`, the batches are views of it, valid until its next use.

        Raises KafkaError OFFSET_OUT_OF_RANGE, TopicNotFound, TopicReplaced.
        """
        isolation_level = record_requests.isolation_level(isolation)

        def attempt() -> FetchResult:
            connection = self._router.connection(self._router.leader(topic, partition))
            found = self._router.topics[topic].topic_id
            if topic_id is not None:
                if found != topic_id:
                    raise TopicReplaced(topic, topic_id, found)
                record_requests.require_fetch_by_id(connection)
            return record_requests.fetch(
                connection,
                record_requests.FetchPosition(topic, found, partition, offset),
                max_bytes=max_bytes,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                isolation_level=isolation_level,
                timeout_s=self._router.timeout_s + max_wait_ms / 1000,
                memory=memory,
            )

        return self._router.retry(attempt)

    def fetch_several(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        max_bytes: int = DEFAULT_FETCH_BYTES,
        max_wait_ms: int = 500,
        isolation: str = "read_uncommitted",
        topic_ids: Mapping[str, Uuid],
    ) -> dict[TopicPartition, FetchResult | KafkaError]:
        """The result of `fetch` or its error for each partition, from one leader after another, which share the wait.

        Nothing is retried, but metadata that may be outdated is refreshed at the next call. Raises BrokerUnreachable,
        KafkaError and TopicNotFound if that refresh fails.
        """
        results: dict[TopicPartition, FetchResult | KafkaError] = {}
        leaders: dict[int, list[record_requests.FetchPosition]] = {}
        missing = {topic for topic, _ in offsets} - self._router.topics.keys()
        if missing:
            self._router.refresh(sorted(missing))
        for key, offset in offsets.items():
            try:
                leader = self._router.leader(*key)
            except KafkaError as error:
                results[key] = error
                continue
            found = self._router.topics[key[0]].topic_id
            if found != topic_ids[key[0]]:
                results[key] = TopicReplaced(key[0], topic_ids[key[0]], found)
                continue
            position = record_requests.FetchPosition(key[0], found, key[1], offset)
            leaders.setdefault(leader, []).append(position)
        wait_ms = max_wait_ms // max(1, len(leaders))
        limits = record_requests.FetchLimits(max_bytes, wait_ms, 1, record_requests.isolation_level(isolation))
        for leader, positions in leaders.items():
            try:
                results |= record_requests.fetch_several(
                    self._router.connection(leader), positions, limits, self._router.timeout_s + wait_ms / 1000
                )
            except (BrokerUnreachable, KafkaError) as error:
                failure = (
                    error if isinstance(error, KafkaError) else KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
                )
                results |= dict.fromkeys([(each.topic, each.partition) for each in positions], failure)
        if any(isinstance(result, KafkaError) for result in results.values()):
            self._router.topics.clear()
        return results

    def delete(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below an offset (-1: below the high watermark) of each partition; safe to repeat.

        Returns the new log start offsets. Raises TopicNotFound, and KafkaError with every failed partition, for example
        OFFSET_OUT_OF_RANGE and POLICY_VIOLATION (a compacted topic).
        """
        starts: dict[TopicPartition, int] = {}

        def attempt() -> dict[TopicPartition, int]:
            for leader, keys in self._router.by_leader([key for key in offsets if key not in starts]).items():
                wanted = {key: offsets[key] for key in keys}
                starts.update(delete_records(self._router.connection(leader), wanted, self._router.timeout_ms()))
            return {key: starts[key] for key in offsets}

        return self._router.retry(attempt)

    def leader_connection(self, position: TopicPartition) -> Connection:
        """A connection to the leader of a partition, valid until closed or NOT_LEADER_OR_FOLLOWER. Raises
        TopicNotFound."""
        return self._router.retry(lambda: self._router.connection(self._router.leader(*position)))
