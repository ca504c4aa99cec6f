"""Outlines of the batches in a data file: position, size, last offset and largest timestamp, from headers alone."""

from __future__ import annotations

from struct import Struct
from typing import Protocol

from ottla.record.batch import (
    BASE_OFFSET,
    BATCH_LENGTH,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_V2,
    MAX_TIMESTAMP,
    MIN_BATCH_LENGTH,
)
from ottla.record.legacy.message_set import MIN_MESSAGE_LENGTH
from ottla.record.legacy.stored import SMALLEST_SIZE, header_of_message, is_message

UNLOADED = -2
NO_TIMESTAMP = -1

SCAN_BYTES = 8192
"""Bytes of one read of a scan."""

BATCH_OUTLINE = Struct(">qi4xb6xi8xq")
"""The fields of a batch header that a scan needs: base offset, batch length, magic, last offset delta, max
timestamp."""

OUTLINE_SIZE = BATCH_OUTLINE.size

Outline = tuple[int, int, int, int]
"""(position, size in bytes, last offset, max timestamp) of a batch, or of a message of format v0 or v1."""

NO_BATCH: Outline = (0, 0, -1, NO_TIMESTAMP)


class Readable(Protocol):
    """Source of a scan."""

    def read(self, length: int, position: int) -> bytes: ...


class OutlineScan:
    """Iterator over the batches of `file` in [position, end), where `position` starts one, including messages of
    formats v0 and v1.

    Reads a few KiB at a time and skips bodies; an incomplete or impossible batch ends it.
    """

    __slots__ = ("_chunk", "_chunk_position", "_end", "_file", "position")

    def __init__(self, file: Readable, position: int, end: int) -> None:
        self._file = file
        self.position = position
        self._end = end
        self._chunk = b""
        self._chunk_position = position

    def __iter__(self) -> OutlineScan:
        return self

    def __next__(self) -> Outline:
        position = self.position
        at = position - self._chunk_position
        if at + OUTLINE_SIZE > len(self._chunk):
            if position + SMALLEST_SIZE > self._end:
                raise StopIteration
            self._chunk = self._file.read(min(SCAN_BYTES, self._end - position), position)
            self._chunk_position = position
            at = 0
            if len(self._chunk) < HEADER_SIZE:
                return self._next_message(at)
        base_offset, batch_length, magic, last_delta, max_timestamp = BATCH_OUTLINE.unpack_from(self._chunk, at)
        if magic < MAGIC_V2:
            return self._next_message(at)
        size = batch_length + LOG_OVERHEAD
        if batch_length < MIN_BATCH_LENGTH or position + size > self._end:
            raise StopIteration
        self.position = position + size
        return position, size, base_offset + last_delta, max_timestamp

    def _next_message(self, at: int) -> Outline:
        """Parse a message of format v0 or v1, which may be shorter than the header of a batch."""
        chunk, position = self._chunk, self.position
        if len(chunk) - at < SMALLEST_SIZE or not is_message(chunk, at):
            raise StopIteration
        header = header_of_message(chunk, at)
        size = header[BATCH_LENGTH] + LOG_OVERHEAD
        if header[BATCH_LENGTH] < MIN_MESSAGE_LENGTH[header[MAGIC]] or position + size > self._end:
            raise StopIteration
        self.position = position + size
        return position, size, header[BASE_OFFSET], header[MAX_TIMESTAMP]


class FileContent:
    """A small file in memory. Implements `Readable`."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, length: int, position: int) -> bytes:
        """See `Readable`."""
        return self._data[position : position + length]


def outlines_of(content: bytes) -> OutlineScan:
    """Return an iterator over the batches of a data file with this content."""
    return OutlineScan(FileContent(content), 0, len(content))
