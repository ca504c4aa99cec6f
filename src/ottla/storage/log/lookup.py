"""Offsets by timestamp: the only read path that reads records.

Segments are searched in offset order, since a later record may have an earlier timestamp. Segments that are too old are
skipped by their largest timestamp, which is read once and cached.

A batch is scanned without record objects, and few are decompressed for nothing: a producer may write any largest
timestamp into the header of a compressed batch, and could otherwise make every lookup decompress the whole log. If the
caller must not block, the pool does the decompression (`off_loop`).

The caller bounds the result by the high watermark.
"""

from __future__ import annotations

import zlib

from ottla.record import walk
from ottla.record.batch import LOG_APPEND_TIME, NO_PARTITION_LEADER_EPOCH, BatchView
from ottla.record.compression import NONE, decompress
from ottla.record.errors import CorruptBatch, InvalidRecord
from ottla.record.legacy.message_set import messages_of, read_entry
from ottla.record.legacy.stored import is_message
from ottla.storage.files.off_loop import Known, known_result
from ottla.storage.log.log_segments import LogSegments
from ottla.storage.segment.outlines import Outline
from ottla.storage.segment.segment import Segment

MAX_MISLEADING = 4
"""Number of batches with a wrong largest timestamp in the header, after which headers are trusted.

One is normal: the record with that timestamp may be before the log start.
"""
INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1


FoundRecord = tuple[int, int, int]
"""(offset, timestamp, leader epoch)."""


def find_timestamp(segments: LogSegments, start_offset: int, timestamp: int, known: Known | None) -> FoundRecord | None:
    """Return the first record at or after `timestamp` in a log that starts at `start_offset`, or None.

    Raises KafkaError if the batch is unreadable, OSError, and, with `known`, WouldBlock instead of blocking.
    """
    misleading = 0
    for segment in segments.holding(start_offset):
        segment.search.load_timestamps()
        if segment.indexes.max_timestamp < timestamp:
            continue
        from_offset = start_offset
        while True:
            outline = segment.search.find_timestamp(timestamp, from_offset)
            if outline is None:
                break
            believe = misleading >= MAX_MISLEADING
            found = _first_record(segment, outline, timestamp, start_offset, known, believe=believe)
            if found is not None:
                return found
            # No record at or above the log start has the timestamp of the header.
            misleading += 1
            _, _, last_offset, _ = outline
            from_offset = last_offset + 1
    return None


def find_max_timestamp(segments: LogSegments, start_offset: int, known: Known | None) -> FoundRecord | None:
    """Return the first record with the largest timestamp, or None. Raises as the function above."""
    best: Segment | None = None
    for segment in segments.holding(start_offset):
        segment.search.load_timestamps()
        if segment.indexes.max_timestamp >= 0 and (
            best is None or segment.indexes.max_timestamp > best.indexes.max_timestamp
        ):
            best = segment
    if best is None:
        return None
    outline = best.search.find_offset(best.indexes.max_timestamp_offset)
    if outline is None:
        return None
    return _first_record(best, outline, best.indexes.max_timestamp, start_offset, known, believe=False)


def _first_record(
    segment: Segment, outline: Outline, timestamp: int, start_offset: int, known: Known | None, *, believe: bool
) -> FoundRecord | None:
    """Return the first record of a batch at or after both. `believe`: use the header without reading records."""
    data = segment.search.read_batch(outline)
    if is_message(data, 0):
        return _first_of_message(data, timestamp, start_offset, known, believe=believe)
    batch = BatchView(data)
    if believe:
        return max(batch.base_offset, start_offset), batch.max_timestamp, batch.partition_leader_epoch
    by_append_time = batch.timestamp_type == LOG_APPEND_TIME
    wanted = INT64_MIN if by_append_time else min(max(timestamp - batch.base_timestamp, INT64_MIN), INT64_MAX)
    first_delta = start_offset - batch.base_offset
    if batch.codec_id == NONE:
        found = _walk(batch, wanted, first_delta, len(batch.buffer))
    else:
        key = (batch.base_offset, batch.crc, first_delta)
        found = known_result(known, key, lambda size: _walk(batch, wanted, first_delta, size))
    if found is None:
        return None
    timestamp_delta, offset_delta = found
    record_timestamp = batch.max_timestamp if by_append_time else batch.base_timestamp + timestamp_delta
    # A compressed batch was stored without reading its records.
    if offset_delta > batch.last_offset_delta or not INT64_MIN <= record_timestamp <= INT64_MAX:
        raise InvalidRecord(f"a record of the batch at offset {batch.base_offset} lies beyond its batch")
    return batch.base_offset + offset_delta, record_timestamp, batch.partition_leader_epoch


def _first_of_message(
    data: bytes, timestamp: int, start_offset: int, known: Known | None, *, believe: bool
) -> FoundRecord | None:
    """Find the record in a message of format v0 or v1, which may be a compressed set. A set without timestamps has no
    result; its offset is that of its last record.
    """
    entry = read_entry(memoryview(data), 0, len(data))
    if entry is None:
        raise CorruptBatch("a message is cut short", 0)
    if believe:
        return max(entry.offset, start_offset), entry.timestamp_ms, NO_PARTITION_LEADER_EPOCH

    def find(max_bytes: int) -> FoundRecord | None:
        for message in messages_of(entry, lambda codec_id, packed: decompress(codec_id, packed, max_bytes)):
            if message.offset >= start_offset and message.timestamp_ms >= timestamp:
                return message.offset, message.timestamp_ms, NO_PARTITION_LEADER_EPOCH
        return None

    if entry.codec_id == NONE:
        return find(entry.size_bytes)
    return known_result(known, (entry.offset, zlib.crc32(data), start_offset), find)


def _walk(batch: BatchView, timestamp_delta: int, first_delta: int, max_bytes: int) -> tuple[int, int] | None:
    """Return (timestamp delta, offset delta) of the first record at or after both; may decompress, to `max_bytes`.

    Raises KafkaError.
    """
    body = batch.body(max_bytes)
    return walk.find_timestamp(body, 0, len(body), batch.records_count, timestamp_delta, first_delta)
