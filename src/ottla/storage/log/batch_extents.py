"""Offsets and producers of the batches in a read, from their headers alone, for leaders of share partitions."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ottla.record.batch import CONTROL_MASK, HEADER_SIZE, LOG_OVERHEAD, MAGIC_V2, MIN_BATCH_LENGTH, TRANSACTIONAL_MASK
from ottla.record.legacy.stored import SMALLEST_SIZE, header_of_message, is_message
from ottla.storage.log.log_segments import LogSegments
from ottla.storage.segment.outlines import SCAN_BYTES
from ottla.storage.segment.results import ReadResult

_FIELDS = Struct(">qi4xb4xhi16xq")
"""Base offset, batch length, magic, attributes, last offset delta, producer id."""


class BatchExtent(NamedTuple):
    """A stored batch: the position of its first byte in the read, its size, its offsets (inclusive), its producer."""

    position: int
    size: int
    first_offset: int
    last_offset: int
    attributes: int
    producer_id: int

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)


def scan_extents(segments: LogSegments, found: ReadResult, end_offset: int, max_batches: int) -> list[BatchExtent]:
    """Return the whole batches in `found.records` that begin before `end_offset`, at most `max_batches`.

    A message of format v0 or v1 begins where the batch before it ends, since it may contain several records. Raises
    OSError, and WouldBlock as `LogReader.extents` does.
    """
    file = segments[segments.number_of(found.segment_base_offset)].data.descriptor
    length = 0 if found.records is None else found.records.length
    extents: list[BatchExtent] = []
    chunk, chunk_position, position, offset = b"", 0, 0, found.offset
    while length - position >= SMALLEST_SIZE and len(extents) < max_batches:
        at = position - chunk_position
        if at + HEADER_SIZE > len(chunk):
            chunk = file.read(min(SCAN_BYTES, length - position), found.position + position)
            chunk_position, at = position, 0
        if is_message(chunk, at):
            header = header_of_message(chunk, at)
            size, first, last, attributes, producer_id = header[1] + LOG_OVERHEAD, offset, header[0], 0, -1
        else:
            if len(chunk) - at < HEADER_SIZE:
                break
            first, size, magic, attributes, delta, producer_id = _FIELDS.unpack_from(chunk, at)
            if magic != MAGIC_V2 or size < MIN_BATCH_LENGTH:
                break
            size, last = size + LOG_OVERHEAD, first + delta
        if first >= end_offset or position + size > length:
            break
        extents.append(BatchExtent(position, size, first, last, attributes, producer_id))
        position, offset = position + size, last + 1
    return extents
