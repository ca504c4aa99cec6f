"""Iteration over the bytes of a segment batch by batch, headers and checksums only.

Memory is bounded: an iteration has one chunk in memory, and a larger batch is checked in pieces. A message of format v0
or v1 is checked by its own header and checksum.

Consequences of a defect are in `recovery`, which truncates, and `segment_scrub`, which reports it. The content of
compressed batches is not read.
"""

from __future__ import annotations

import zlib

from ottla.record.batch import (
    ATTRIBUTES_POSITION,
    BASE_OFFSET,
    BATCH_LENGTH,
    CRC,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    MAGIC_V2,
    MIN_BATCH_LENGTH,
    BatchHeader,
)
from ottla.record.checksum import crc32c
from ottla.record.legacy.message_set import MIN_MESSAGE_LENGTH, OLD_MAGICS
from ottla.record.legacy.stored import SMALLEST_SIZE, header_of_any
from ottla.storage.segment.outlines import Readable

_CHUNK_BYTES = 1024 * 1024
_MIN_LENGTH = (*MIN_MESSAGE_LENGTH, MIN_BATCH_LENGTH)
"""Minimum value of the length field of a message or batch, by magic."""
HEADER_CUT = "the header of a batch is cut short"


class BatchFrames:
    """Iterates over the batches of `file` before `end`: `header`, then `skip`."""

    __slots__ = ("_chunk", "_chunk_position", "_file", "end", "position", "size")

    def __init__(self, file: Readable, position: int, end: int) -> None:
        """`position` is the start of a batch."""
        self._file = file
        self.end = end
        self._chunk = b""
        self._chunk_position = 0
        self.position = position
        self.size = 0
        """Size that the batch at `position` claims, once its header was read; it is unverified."""

    @property
    def left(self) -> int:
        """Number of bytes from `position` to the end."""
        return self.end - self.position

    def header(self) -> BatchHeader | None:
        """Return the header of the batch at `position`; None if it is cut short. Raises OSError."""
        position, left = self.position, self.end - self.position
        if left < SMALLEST_SIZE:
            return None
        at = position - self._chunk_position
        if at + min(HEADER_SIZE, left) > len(self._chunk):
            at = self._refill()
        header = header_of_any(self._chunk, at)
        if header is None:
            return None
        self.size = size = header[BATCH_LENGTH] + LOG_OVERHEAD
        if at + size > len(self._chunk) and 0 < size <= _CHUNK_BYTES:
            self._refill()
        return header

    def _refill(self) -> int:
        left = self.end - self.position
        self._chunk = self._file.read(min(_CHUNK_BYTES, left), self.position)
        self._chunk_position = self.position
        if len(self._chunk) < min(HEADER_SIZE, left):
            raise OSError("the file is shorter than its size")
        return 0

    @property
    def cut(self) -> str:
        """Return how the batch is cut short by the end; empty if it is whole."""
        return f"a batch of {self.size} bytes is cut short after {self.left}" if self.size > self.left else ""

    def crc_defect(self, header: BatchHeader) -> str:
        """Return the difference between the CRC and the bytes of the whole batch at `position`; empty if they match.

        Raises OSError.
        """
        return (
            "" if self._crc_matches(header) else f"the CRC of the batch at offset {header[BASE_OFFSET]} does not match"
        )

    def _crc_matches(self, header: BatchHeader) -> bool:
        checksum, start = (crc32c, ATTRIBUTES_POSITION) if header[MAGIC] == MAGIC_V2 else (zlib.crc32, MAGIC_POSITION)
        size, at = self.size, self.position - self._chunk_position
        if at + size <= len(self._chunk):
            return bool(checksum(memoryview(self._chunk)[at + start : at + size]) == header[CRC])
        crc, cursor, end = 0, self.position + start, self.position + size
        while cursor < end:
            piece = self._file.read(min(_CHUNK_BYTES, end - cursor), cursor)
            if not piece:
                return False
            crc = checksum(piece, crc)
            cursor += len(piece)
        return crc == header[CRC]

    def header_at(self, position: int) -> BatchHeader | None:
        """Return the header of the batch at `position`; None without a whole one. Raises OSError."""
        at = position - self._chunk_position
        if at + HEADER_SIZE <= len(self._chunk):
            return header_of_any(self._chunk, at)
        return header_of_any(self._file.read(max(min(HEADER_SIZE, self.end - position), 0), position), 0)

    def skip(self) -> None:
        """Move behind the current batch, which is whole."""
        self.position += self.size


def framing_defect(header: BatchHeader) -> str:
    """Return why no batch can follow one with this header, as far as the header shows it; empty if one can."""
    magic = header[MAGIC]
    if magic != MAGIC_V2 and magic not in OLD_MAGICS:
        return f"magic {magic} names no message format"
    if header[BATCH_LENGTH] < _MIN_LENGTH[magic]:
        return f"a batch length of {header[BATCH_LENGTH]} is impossible"
    return ""
