"""Requests that read partitions: ListOffsets, OffsetForLeaderEpoch, Fetch.

One exchange each, on a given connection. They do not retry; the first error of a partition is returned or raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_for, response_error
from ottla.client.wire.model import (
    EARLIEST_TIMESTAMP,
    ISOLATION_LEVELS,
    AbortedTransaction,
    FetchResult,
    KeyFreeRange,
    KeyFreeRanges,
    OffsetInfo,
)
from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.protocol.messages.list_offsets import (
    KeySearch,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.registry import ApiKey

if TYPE_CHECKING:
    from ottla.common.platform.reused_memory import ReusedMemory

T = TypeVar("T")

SESSION_ID = 0
SESSION_EPOCH = -1
"""Values for a fetch without a session (KIP-227)."""
CONSUMER = -1
"""The replica id of clients."""
LAST_WITH_SEVERAL_OFFSETS = 0
"""Last version of ListOffsets with lookups by segment time (removed by KIP-79)."""
FIRST_FETCH_BY_ID = 13
"""First version of Fetch with topic ids instead of names (KIP-516)."""


class FetchPosition(NamedTuple):
    """A fetch position; the version determines whether the name or the id is sent (FIRST_FETCH_BY_ID)."""

    topic: str
    topic_id: Uuid
    partition: int
    offset: int


def list_offsets(
    connection: Connection, timestamps: Mapping[tuple[str, int], int], isolation_level: int
) -> tuple[dict[tuple[str, int], OffsetInfo], KafkaError | None]:
    """The offsets of the partitions that succeeded, and the first failure of the others."""
    request = _list_offsets_request(timestamps, isolation_level)
    response: ListOffsetsResponse = connection.request(ApiKey.LIST_OFFSETS, request)
    return _answered(
        connection, timestamps, response, lambda found: OffsetInfo(found.offset, found.timestamp, found.leader_epoch)
    )


def _list_offsets_request(
    timestamps: Mapping[tuple[str, int], int], isolation_level: int, max_count: int = 1
) -> ListOffsetsRequest:
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), timestamp in timestamps.items():
        entry = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, max_num_offsets=max_count)
        by_topic.setdefault(topic, []).append(entry)
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in by_topic.items()],
    )


def _answered(
    connection: Connection,
    timestamps: Mapping[tuple[str, int], int],
    response: ListOffsetsResponse,
    read: Callable[[ListOffsetsPartitionResponse], T],
) -> tuple[dict[tuple[str, int], T], KafkaError | None]:
    offsets: dict[tuple[str, int], T] = {}
    error: KafkaError | None = None
    for topic_response in response.topics:
        for partition_response in topic_response.partitions:
            key = (topic_response.name, partition_response.partition_index)
            if partition_response.error_code == ErrorCode.NONE:
                offsets[key] = read(partition_response)
            elif error is None:
                error = response_error(partition_response.error_code, f"offsets of {key[0]}-{key[1]}")
    if error is None and offsets.keys() != timestamps.keys():
        raise ProtocolError(f"{connection.address} responded with other partitions than those of ListOffsets")
    return offsets, error


def ranges_without_keys(
    connection: Connection,
    starts: Mapping[tuple[str, int], int],
    ends: Mapping[tuple[str, int], int],
    keys: Sequence[bytes],
    isolation_level: int,
) -> tuple[dict[tuple[str, int], KeyFreeRanges | None], KafkaError | None]:
    """Ranges of offsets in which no record has one of the keys, by key filters of the broker.

    Otherwise as `list_offsets`; None for a partition without filters, and from a broker that is not Ottla.
    """
    request = _list_offsets_request(dict.fromkeys(starts, EARLIEST_TIMESTAMP), isolation_level)
    for topic in request.topics:
        for each in topic.partitions:
            place = (topic.name, each.partition_index)
            each.key_search = KeySearch(start_offset=starts[place], end_offset=ends[place], keys=list(keys))
    response: ListOffsetsResponse = connection.request(ApiKey.LIST_OFFSETS, request)
    return _answered(connection, starts, response, lambda found: _key_free_ranges(connection, found))


def _key_free_ranges(connection: Connection, found: ListOffsetsPartitionResponse) -> KeyFreeRanges | None:
    if found.key_search is None:
        return None
    ranges = tuple(
        KeyFreeRange(each.start_offset, each.end_offset, each.records, each.oldest_ms, each.newest_ms)
        for each in found.key_search.ranges
    )
    edges = [edge for each in ranges for edge in each[:2]]
    if edges != sorted(edges) or any(each.start >= each.end for each in ranges):
        raise ProtocolError(f"{connection.address} responded with ranges of offsets that overlap")
    return KeyFreeRanges(ranges, found.key_search.searched_end_offset)


def offsets_before(
    connection: Connection, timestamps: Mapping[tuple[str, int], int], max_count: int
) -> tuple[dict[tuple[str, int], list[int]], KafkaError | None]:
    """Base offsets of segments that were last written at or before a time (ms), and the log end as that of now.

    At most `max_count` per partition, descending; LATEST_TIMESTAMP means all, EARLIEST_TIMESTAMP only the first.
    Otherwise as `list_offsets`. Raises KafkaError UNSUPPORTED_VERSION if the broker has dropped this version (KIP-896).
    """
    request = _list_offsets_request(timestamps, 0, max_count)
    response: ListOffsetsResponse = connection.request(
        ApiKey.LIST_OFFSETS, request, max_version=LAST_WITH_SEVERAL_OFFSETS
    )
    return _answered(
        connection, timestamps, response, lambda found: sorted(found.old_style_offsets, reverse=True)[:max_count]
    )


def epoch_ends(
    connection: Connection, epochs: Mapping[tuple[str, int], int]
) -> tuple[dict[tuple[str, int], int], KafkaError | None]:
    """The end offsets of the partitions that succeeded, and the first failure of the others."""
    by_topic: dict[str, list[OffsetForLeaderPartition]] = {}
    for (topic, partition), epoch in epochs.items():
        by_topic.setdefault(topic, []).append(OffsetForLeaderPartition(partition=partition, leader_epoch=epoch))
    request = OffsetForLeaderEpochRequest(
        replica_id=CONSUMER,
        topics=[OffsetForLeaderTopic(topic=name, partitions=partitions) for name, partitions in by_topic.items()],
    )
    response: OffsetForLeaderEpochResponse = connection.request(ApiKey.OFFSET_FOR_LEADER_EPOCH, request)
    found: dict[tuple[str, int], int] = {}
    error: KafkaError | None = None
    for topic_result in response.topics:
        for result in topic_result.partitions:
            key = (topic_result.topic, result.partition)
            if result.error_code == ErrorCode.NONE:
                found[key] = result.end_offset
            elif error is None:
                error = response_error(result.error_code, f"leader epochs of {key[0]}-{key[1]}")
    if error is None and found.keys() != epochs.keys():
        raise ProtocolError(f"{connection.address} responded with other partitions than those of OffsetForLeaderEpoch")
    return found, error


def require_fetch_by_id(connection: Connection) -> None:
    """Raise KafkaError if Fetch would use the topic's name, so that another topic of this name could be read."""
    version = connection.version_for(ApiKey.FETCH)
    if version < FIRST_FETCH_BY_ID:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the broker at {connection.address} supports Fetch up to version {version}, which has no topic ids",
        )


class FetchLimits(NamedTuple):
    """Limits of one Fetch: response bytes (KIP-74), the wait for `min_bytes`, the isolation level as a number."""

    max_bytes: int
    max_wait_ms: int
    min_bytes: int
    isolation_level: int


def fetch_several(
    connection: Connection,
    positions: Sequence[FetchPosition],
    limits: FetchLimits,
    timeout_s: float,
    memory: ReusedMemory | None = None,
) -> dict[TopicPartition, FetchResult | KafkaError]:
    """Raw batches of partitions of one leader, or the error of each; omits partitions that the response lacks.

    With `memory`, records are views of it, valid until its next use.

    Raises KafkaError for an error of the whole request.
    """
    topics: dict[str, FetchTopic] = {}
    for position in positions:
        topic = topics.setdefault(position.topic, FetchTopic(topic=position.topic, topic_id=position.topic_id))
        topic.partitions.append(
            FetchPartition(
                partition=position.partition, fetch_offset=position.offset, partition_max_bytes=limits.max_bytes
            )
        )
    request = FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation_level,
        session_id=SESSION_ID,
        session_epoch=SESSION_EPOCH,
        topics=list(topics.values()),
    )
    response: FetchResponse = connection.request(ApiKey.FETCH, request, timeout_s=timeout_s, memory=memory)
    raise_for(response.error_code, "fetch")
    asked = {(position.topic, position.partition): position for position in positions}
    names = {position.topic_id: position.topic for position in positions}
    results: dict[TopicPartition, FetchResult | KafkaError] = {}
    for answer in response.responses:
        name = answer.topic or names.get(answer.topic_id, "")
        for data in answer.partitions:
            key = (name, data.partition_index)
            if key in asked:
                results[key] = _fetch_result(asked[key], data, in_place=memory is not None)
    return results


def fetch(
    connection: Connection,
    position: FetchPosition,
    *,
    max_bytes: int,
    max_wait_ms: int,
    min_bytes: int,
    isolation_level: int,
    timeout_s: float,
    memory: ReusedMemory | None = None,
) -> FetchResult:
    """Raw batches of one partition from `position.offset`; `memory` as in `fetch_several`."""
    limits = FetchLimits(max_bytes, max_wait_ms, min_bytes, isolation_level)
    results = fetch_several(connection, [position], limits, timeout_s, memory)
    result = results.get((position.topic, position.partition))
    if isinstance(result, KafkaError):
        raise result
    if result is None:
        raise ProtocolError(f"{connection.address} omitted the partition from its response: {_subject(position)}")
    return result


def _subject(position: FetchPosition) -> str:
    return f"fetch of {position.topic}-{position.partition} at offset {position.offset}"


def _fetch_result(position: FetchPosition, data: PartitionData, *, in_place: bool) -> FetchResult | KafkaError:
    if data.error_code != ErrorCode.NONE:
        return response_error(data.error_code, _subject(position))
    aborted = tuple(
        AbortedTransaction(transaction.producer_id, transaction.first_offset)
        for transaction in data.aborted_transactions or ()
    )
    records = data.records or b""
    return FetchResult(
        records if in_place else bytes(records),
        data.high_watermark,
        data.log_start_offset,
        data.last_stable_offset,
        aborted,
    )


def isolation_level(isolation: str) -> int:
    """The number of an isolation level by its name. Raises KafkaError INVALID_REQUEST."""
    level = ISOLATION_LEVELS.get(isolation)
    if level is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"isolation must be one of {', '.join(ISOLATION_LEVELS)}, not {isolation!r}"
        )
    return level
