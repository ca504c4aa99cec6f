"""Source for every cluster: Fetch requests, as any consumer sends them.

A range ends at its planned offset, even if compaction or a transaction marker left no record there: progress counts the
offsets of whole batches, not of records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from ottla.client.wire.failure import TopicReplaced
from ottla.client.wire.model import EARLIEST_TIMESTAMP, NO_OFFSET
from ottla.common.errors import ErrorCode, KafkaError, OttlaError
from ottla.common.kafka.ids import uuid_from_string
from ottla.pipeline.model.decode import DecodeResult
from ottla.pipeline.model.plan import ClusterView, DataLossError, OffsetRange, OnDataLoss, fetch_planned
from ottla.pipeline.sources.source import RangePart, RecordsDeletedError, decode_part

FETCH_BYTES = 8 << 20
FETCH_WAIT_MS = 500
STALL_TIMEOUT_S = 60.0
"""Seconds without progress below the partition's end until the read gives up."""


def read_range(
    cluster: ClusterView,
    whole: OffsetRange,
    *,
    isolation: str,
    on_data_loss: OnDataLoss,
    fetch_bytes: int | None = None,
) -> Iterator[RangePart]:
    """Implements `ReadRange`; one part for each fetch of `fetch_bytes`, by default FETCH_BYTES."""
    offset = whole.start_offset
    while offset < whole.end_offset:
        try:
            part = _next_part(cluster, whole, offset, isolation, fetch_bytes or FETCH_BYTES)
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            following = min(_after_loss(cluster, whole, offset, on_data_loss), whole.end_offset)
            part = RangePart(DecodeResult(following), skipped_offsets=following - offset)
        yield part
        offset = part.decoded.next_offset
    require_whole(cluster, whole)


def fetch_part(
    cluster: ClusterView, whole: OffsetRange, offset: int, isolation: str, *, max_bytes: int, max_wait_ms: int
) -> RangePart:
    """The records of one fetch in a range from `offset` on.

    Raises DecodeError, TopicNotFound, TopicReplaced, KafkaError.
    """
    result = fetch_planned(cluster, whole, offset, isolation, max_bytes=max_bytes, max_wait_ms=max_wait_ms)
    return decode_part(result.records, whole, offset, result.aborted)


def _next_part(cluster: ClusterView, whole: OffsetRange, offset: int, isolation: str, fetch_bytes: int) -> RangePart:
    """The records of the first fetch that returns any."""
    deadline = time.monotonic() + STALL_TIMEOUT_S
    while True:
        part = fetch_part(cluster, whole, offset, isolation, max_bytes=fetch_bytes, max_wait_ms=FETCH_WAIT_MS)
        if part.decoded.next_offset > offset:
            return part
        if time.monotonic() > deadline:
            raise OttlaError(
                f"topic {whole.topic!r} partition {whole.partition}: no record arrived from offset {offset} on for "
                f"{STALL_TIMEOUT_S:.0f} seconds, though the partition was planned up to offset {whole.end_offset}"
            )


def _after_loss(cluster: ClusterView, whole: OffsetRange, offset: int, on_data_loss: OnDataLoss) -> int:
    """The offset to resume at when `offset` is gone: retention passed it after the plan was made."""
    key = (whole.topic, whole.partition)
    log_start = cluster.records.list_offsets({key: EARLIEST_TIMESTAMP})[key].offset
    what = f"topic {whole.topic!r} partition {whole.partition}: offset {offset} is out of range"
    if log_start <= offset:
        raise DataLossError(f"{what}: the log was truncated after the read was planned")
    if on_data_loss == "fail":
        raise RecordsDeletedError(
            f"{what}, the log starts at {log_start} now: records were deleted while they were read"
        )
    return log_start


def require_whole(cluster: ClusterView, whole: OffsetRange) -> None:
    """Raise DataLossError if the log was truncated below the range's end since the plan: its records are others now.

    Raises TopicReplaced if the topic was recreated instead, so that its leader epochs are unrelated.
    """
    if whole.leader_epoch < 0:
        return
    key = (whole.topic, whole.partition)
    end = cluster.records.epoch_ends({key: whole.leader_epoch})[key]
    if NO_OFFSET < end < whole.end_offset:
        planned, found = uuid_from_string(whole.topic_id), cluster.topics.get(whole.topic).topic_id
        if found != planned:
            raise TopicReplaced(whole.topic, planned, found)
        raise DataLossError(
            f"topic {whole.topic!r} partition {whole.partition}: the log was truncated to offset {end} during the "
            "read; the records that were read are invalid: run the read again"
        )
