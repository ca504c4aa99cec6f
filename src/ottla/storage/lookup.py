"""Offsets by timestamp: the one read path that looks into records.

Segments are asked in offset order, since a later record may have an earlier timestamp; a segment that is too old is
skipped by its largest timestamp, which is read once and kept.

Left out: bounding the answer by the high watermark (the caller's).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.record.batch import BatchView
from ottla.storage.segment import Outline, Segment

if TYPE_CHECKING:
    from ottla.storage.log import Log


def find_timestamp(log: Log, timestamp: int) -> tuple[int, int, int] | None:
    """(offset, timestamp, leader epoch) of the first record at or after `timestamp`; None without one.

    Raises OSError, KafkaError when the batch can't be read.
    """
    start_offset = log.log_start_offset
    for segment in log.segments[log.segment_number(start_offset) :]:
        segment.load_timestamps()
        if segment.max_timestamp < timestamp:
            continue
        from_offset = start_offset
        while True:
            outline = segment.find_timestamp(timestamp, from_offset)
            if outline is None:
                break
            found = _first_record(segment, outline, timestamp, start_offset)
            if found is not None:
                return found
            # The header promised a timestamp that no record at or above the log start has.
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
    return None if outline is None else _first_record(best, outline, best.max_timestamp, log.log_start_offset)


def _first_record(segment: Segment, outline: Outline, timestamp: int, start_offset: int) -> tuple[int, int, int] | None:
    batch = BatchView(segment.read_batch(outline))
    for record in batch.records():
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return record.offset, record.timestamp, batch.partition_leader_epoch
    return None
