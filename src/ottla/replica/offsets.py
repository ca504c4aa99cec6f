"""ListOffsets for one partition: special timestamps and the limits of isolation levels.

Request layouts and batching are in `server.handlers.data.list_offsets`.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.replica.partition import NO_EPOCH, NO_OFFSET, Partition
from ottla.storage.files.off_loop import Known

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6

NO_TIMESTAMP = -1


class FoundOffset(NamedTuple):
    """An offset with the timestamp (ms) and leader epoch of its record; -1 for missing values."""

    offset: int
    timestamp: int
    leader_epoch: int


NOT_FOUND = FoundOffset(NO_OFFSET, NO_TIMESTAMP, NO_EPOCH)


def find_offset(
    partition: Partition, timestamp: int, isolation_level: int, *, from_replica: bool, known: Known | None = None
) -> FoundOffset:
    """Return the offset of `timestamp`, O(1) for the latest and O(log n) otherwise.

    A replica sees up to the log end, a consumer up to the high watermark or the last stable offset. Raises KafkaError
    OFFSET_NOT_AVAILABLE while the high watermark has not reached the epoch's start (KIP-207), and, with `known`,
    WouldBlock instead of blocking.
    """
    log = partition.log
    end = log.log_end_offset if from_replica else partition.read_end(isolation_level)
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return FoundOffset(log.log_start_offset, NO_TIMESTAMP, log.epochs.epoch_for_offset(log.log_start_offset))
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        # Without tiered storage no offset is tiered or waits for upload (KIP-1005, KIP-1023).
        return NOT_FOUND
    if timestamp == LATEST_TIMESTAMP:
        if not from_replica:
            check_high_watermark(partition)
        return FoundOffset(end, NO_TIMESTAMP, partition.leader_epoch)
    found = log.max_timestamp(known) if timestamp == MAX_TIMESTAMP else log.lookup_timestamp(timestamp, known)
    if found is not None and found[0] < end:
        return FoundOffset(*found)
    if not from_replica:
        check_high_watermark(partition)
    return NOT_FOUND


def offsets_before(
    partition: Partition, timestamp: int, max_count: int, now_ms: int, *, from_replica: bool
) -> list[int]:
    """Return the offsets of a ListOffsets 0 response: bases of segments last written at `timestamp` (ms) or before,
    newest first, and the log end for the present; at most `max_count`.

    LATEST_TIMESTAMP means all, EARLIEST_TIMESTAMP only the first. For a consumer the high watermark replaces higher
    offsets. Raises OSError.
    """
    log = partition.log
    segments = log.segments
    count = len(segments)
    offsets = [max(segment.base_offset, log.log_start_offset) for segment in segments]
    if segments.active.data.size_bytes:
        offsets.append(log.log_end_offset)
    if timestamp == LATEST_TIMESTAMP:
        count = len(offsets)
    elif timestamp == EARLIEST_TIMESTAMP:
        count = 1
    elif len(offsets) > count and now_ms <= timestamp:
        count = len(offsets)
    else:
        while count and segments[count - 1].data.mtime_ms() > timestamp:
            count -= 1
    found = offsets[:count][::-1][: max(0, max_count)]
    high_watermark = partition.high_watermark
    if not from_replica and any(offset > high_watermark for offset in found):
        found = [high_watermark, *(offset for offset in found if offset <= high_watermark)]
    return found


def check_high_watermark(partition: Partition) -> None:
    """Raise OFFSET_NOT_AVAILABLE right after an election, when offsets in the response could go back (KIP-207)."""
    if partition.high_watermark < partition.leader_epoch_start_offset:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
