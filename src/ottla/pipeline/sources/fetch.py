"""The source that every cluster has: Kafka's Fetch, as any consumer sends it.

A range ends at its planned offset, though compaction or transaction markers may have left no record there: the broker
tells of whole batches, and what the last one covers has passed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from ottla.client.model import EARLIEST_TIMESTAMP, NO_OFFSET
from ottla.common.errors import ErrorCode, KafkaError, OttlaError
from ottla.pipeline.decode import Decoded, decode
from ottla.pipeline.plan import ClusterView, DataLossError, OffsetRange, OnDataLoss
from ottla.pipeline.sources.source import RangePart, RecordsDeletedError

FETCH_BYTES = 8 << 20
FETCH_WAIT_MS = 500
STALL_TIMEOUT_S = 60.0
"""How long a range below the partition's end may bring nothing before the read gives up."""


def read_range(
    cluster: ClusterView, whole: OffsetRange, *, isolation: str, on_data_loss: OnDataLoss
) -> Iterator[RangePart]:
    """As `ReadRange` says; one part a fetch."""
    offset = whole.start_offset
    while offset < whole.end_offset:
        try:
            part = _fetch_part(cluster, whole, offset, isolation)
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            following = min(_after_loss(cluster, whole, offset, on_data_loss), whole.end_offset)
            part = RangePart(Decoded(following), skipped_offsets=following - offset)
        yield part
        offset = part.decoded.next_offset
    require_whole(cluster, whole)


def _fetch_part(cluster: ClusterView, whole: OffsetRange, offset: int, isolation: str) -> RangePart:
    """Decode what one fetch brings, waiting while it brings nothing."""
    deadline = time.monotonic() + STALL_TIMEOUT_S
    while True:
        result = cluster.fetch(
            whole.topic,
            whole.partition,
            offset,
            max_bytes=FETCH_BYTES,
            max_wait_ms=FETCH_WAIT_MS,
            isolation=isolation,
            topic_id=whole.wire_topic_id,
        )
        decoded = decode(
            result.records,
            topic=whole.topic,
            partition=whole.partition,
            start_offset=offset,
            end_offset=whole.end_offset,
            aborted=result.aborted,
        )
        if decoded.next_offset > offset:
            return RangePart(decoded, len(result.records))
        if time.monotonic() > deadline:
            raise OttlaError(
                f"topic {whole.topic!r} partition {whole.partition}: nothing came from offset {offset} on for "
                f"{STALL_TIMEOUT_S:.0f} seconds, though the partition was planned up to offset {whole.end_offset}"
            )


def _after_loss(cluster: ClusterView, whole: OffsetRange, offset: int, on_data_loss: OnDataLoss) -> int:
    """Where to go on when `offset` is gone: retention passed it after the plan was made."""
    key = (whole.topic, whole.partition)
    log_start = cluster.list_offsets({key: EARLIEST_TIMESTAMP})[key].offset
    what = f"topic {whole.topic!r} partition {whole.partition}: offset {offset} is out of range"
    if log_start <= offset:
        raise DataLossError(f"{what}: the log became shorter than it was when the read was planned")
    if on_data_loss == "fail":
        raise RecordsDeletedError(
            f"{what}, the log starts at {log_start} now: records were deleted while they were read"
        )
    return log_start


def require_whole(cluster: ClusterView, whole: OffsetRange) -> None:
    """Raise DataLossError when the log was cut below the range's end since the plan: other records are in it then."""
    if whole.leader_epoch < 0:
        return
    key = (whole.topic, whole.partition)
    end = cluster.epoch_ends({key: whole.leader_epoch})[key]
    if NO_OFFSET < end < whole.end_offset:
        raise DataLossError(
            f"topic {whole.topic!r} partition {whole.partition}: the log was cut back to offset {end} while it was "
            "read; what was read is void, run it again"
        )
