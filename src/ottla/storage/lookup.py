"""Offsets by timestamp: the one read path that looks into records.

Segments are asked in offset order, since a later record may have an earlier timestamp; a segment that is too old is
skipped by its largest timestamp, which is read once and kept.

A batch is opened without an object for any of its records, and few are opened in vain: a producer may write any largest
timestamp into the header of a compressed batch, and would otherwise make every lookup decompress the whole log.

Left out: bounding the answer by the high watermark (the caller's).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.record import walk
from ottla.record.batch import LOG_APPEND_TIME, BatchView
from ottla.record.errors import InvalidRecord
from ottla.storage.segment import Outline, Segment

if TYPE_CHECKING:
    from ottla.storage.log import Log

MAX_MISLEADING = 4
"""Batches whose header promised a timestamp that none of its records has; after so many, headers are believed.

One is normal: records before the log start may be the ones that have it."""
INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1


def find_timestamp(log: Log, timestamp: int) -> tuple[int, int, int] | None:
    """(offset, timestamp, leader epoch) of the first record at or after `timestamp`; None without one.

    Raises OSError, KafkaError when the batch can't be read.
    """
    start_offset = log.log_start_offset
    misleading = 0
    for segment in log.segments[log.segment_number(start_offset) :]:
        segment.load_timestamps()
        if segment.max_timestamp < timestamp:
            continue
        from_offset = start_offset
        while True:
            outline = segment.find_timestamp(timestamp, from_offset)
            if outline is None:
                break
            found = _first_record(segment, outline, timestamp, start_offset, believe=misleading >= MAX_MISLEADING)
            if found is not None:
                return found
            # The header promised a timestamp that no record at or above the log start has.
            misleading += 1
            from_offset = outline[2] + 1
    return None


def find_max_timestamp(log: Log) -> tuple[int, int, int] | None:
    """(offset, timestamp, leader epoch) of the first record with the largest timestamp; None when there is none.

    Raises OSError, KafkaError when the batch can't be read.
    """
    best: Segment | None = None
    for segment in log.segments[log.segment_number(log.log_start_offset) :]:
        segment.load_timestamps()
        if segment.max_timestamp >= 0 and (best is None or segment.max_timestamp > best.max_timestamp):
            best = segment
    if best is None:
        return None
    outline = best.find_offset(best.max_timestamp_offset)
    if outline is None:
        return None
    return _first_record(best, outline, best.max_timestamp, log.log_start_offset, believe=False)


def _first_record(
    segment: Segment, outline: Outline, timestamp: int, start_offset: int, *, believe: bool
) -> tuple[int, int, int] | None:
    """The first record of a batch at or after both. `believe`: take the header's word and don't look inside."""
    batch = BatchView(segment.read_batch(outline))
    if believe:
        return max(batch.base_offset, start_offset), batch.max_timestamp, batch.partition_leader_epoch
    body = batch.body()
    by_append_time = batch.timestamp_type == LOG_APPEND_TIME
    wanted = INT64_MIN if by_append_time else min(max(timestamp - batch.base_timestamp, INT64_MIN), INT64_MAX)
    found = walk.find_timestamp(body, 0, len(body), batch.records_count, wanted, start_offset - batch.base_offset)
    if found is None:
        return None
    timestamp_delta, offset_delta = found
    record_timestamp = batch.max_timestamp if by_append_time else batch.base_timestamp + timestamp_delta
    # Nobody looked into a compressed batch before it was stored.
    if offset_delta > batch.last_offset_delta or not INT64_MIN <= record_timestamp <= INT64_MAX:
        raise InvalidRecord(f"a record of the batch at offset {batch.base_offset} lies beyond its batch")
    return batch.base_offset + offset_delta, record_timestamp, batch.partition_leader_epoch
