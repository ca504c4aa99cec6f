"""Record batches of format v2 in a buffer: header layout, view, iteration.

A view parses the 61 bytes of the header once and copies nothing. Sizes are checked before bytes are read; only
`crc_matches` verifies the content (the broker calls it when data enters, `validate`). Layout: KIP-98. The CRC covers
everything from the attributes on, so base offset and leader epoch may be patched in place. Message formats v0 and v1
are in `legacy`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.platform.disk import Buffer
from ottla.record.checksum import crc32c
from ottla.record.compression import CODEC_NAMES, DEFAULT_MAX_BYTES, decompress
from ottla.record.errors import CorruptBatch, InvalidRecord, timestamp_out_of_range
from ottla.record.varint import read_unsigned_varint
from ottla.record.walk import parse_records

if TYPE_CHECKING:
    from ottla.common.platform.reused_memory import ReusedMemory

BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")

BatchHeader = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""Fields of `BATCH_HEADER` in order, accessed by name: `header[LAST_OFFSET_DELTA]`.

A tuple, so that no object is created for a batch on its way; headers of other formats fill the same fields.
"""

(
    BASE_OFFSET,
    BATCH_LENGTH,
    PARTITION_LEADER_EPOCH,
    MAGIC,
    CRC,
    ATTRIBUTES,
    LAST_OFFSET_DELTA,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    BASE_SEQUENCE,
    RECORDS_COUNT,
) = range(13)

HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Size of base offset and batch length, which batch_length does not include."""

LENGTH_POSITION = 8
LEADER_EPOCH_POSITION = 12
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
BASE_TIMESTAMP_POSITION = 27
MAX_TIMESTAMP_POSITION = 35
MIN_BATCH_LENGTH = HEADER_SIZE - LOG_OVERHEAD

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

CREATE_TIME = 0
LOG_APPEND_TIME = 1

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1
MAGIC_V2 = 2

_INT32 = struct.Struct(">i")
_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1


@dataclass(slots=True)
class Record:
    """One record as a consumer sees it; `timestamp` in milliseconds since the epoch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    offset_delta: int


_Parsed = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""A row of `parse_records`."""


class BatchView:
    """A batch that starts at `position` of `buffer`; the body may be missing until it is read."""

    __slots__ = ("_header", "buffer", "position")

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        """Raises CorruptBatch if the header does not fit, or its length is impossible."""
        if position < 0 or len(buffer) - position < HEADER_SIZE:
            raise CorruptBatch("a batch header is cut short", position)
        self.buffer = buffer
        self.position = position
        self._header: BatchHeader = BATCH_HEADER.unpack_from(buffer, position)
        if self._header[BATCH_LENGTH] < MIN_BATCH_LENGTH:
            raise CorruptBatch(f"a batch length of {self._header[BATCH_LENGTH]} bytes is too small", position)

    def __repr__(self) -> str:
        return (
            f"BatchView(position={self.position}, base_offset={self.base_offset}, last_offset={self.last_offset}, "
            f"records_count={self.records_count}, size_bytes={self.size_bytes}, compression={self.compression!r})"
        )

    @property
    def header(self) -> BatchHeader:
        return self._header

    @property
    def base_offset(self) -> int:
        return self._header[BASE_OFFSET]

    @property
    def partition_leader_epoch(self) -> int:
        return self._header[PARTITION_LEADER_EPOCH]

    @property
    def magic(self) -> int:
        return self._header[MAGIC]

    @property
    def crc(self) -> int:
        """The stored CRC-32C."""
        return self._header[CRC]

    @property
    def attributes(self) -> int:
        return self._header[ATTRIBUTES]

    @property
    def last_offset_delta(self) -> int:
        return self._header[LAST_OFFSET_DELTA]

    @property
    def base_timestamp(self) -> int:
        """Base of timestamp deltas in milliseconds; see `delete_horizon_ms` for its second meaning."""
        return self._header[BASE_TIMESTAMP]

    @property
    def max_timestamp(self) -> int:
        return self._header[MAX_TIMESTAMP]

    @property
    def producer_id(self) -> int:
        return self._header[PRODUCER_ID]

    @property
    def producer_epoch(self) -> int:
        return self._header[PRODUCER_EPOCH]

    @property
    def base_sequence(self) -> int:
        return self._header[BASE_SEQUENCE]

    @property
    def records_count(self) -> int:
        return self._header[RECORDS_COUNT]

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return LOG_OVERHEAD + self._header[BATCH_LENGTH]

    @property
    def end(self) -> int:
        """Position in the buffer after the batch."""
        return self.position + LOG_OVERHEAD + self._header[BATCH_LENGTH]

    @property
    def last_offset(self) -> int:
        return self._header[BASE_OFFSET] + self._header[LAST_OFFSET_DELTA]

    @property
    def next_offset(self) -> int:
        return self._header[BASE_OFFSET] + self._header[LAST_OFFSET_DELTA] + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, which wraps from 2^31 - 1 to 0; NO_SEQUENCE without sequences."""
        if self._header[BASE_SEQUENCE] == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self._header[BASE_SEQUENCE] + self._header[LAST_OFFSET_DELTA]) & 0x7FFFFFFF

    @property
    def codec_id(self) -> int:
        return self._header[ATTRIBUTES] & COMPRESSION_MASK

    @property
    def compression(self) -> str:
        """Kafka's name of the codec, or its number if unknown."""
        codec_id = self._header[ATTRIBUTES] & COMPRESSION_MASK
        return CODEC_NAMES[codec_id] if codec_id < len(CODEC_NAMES) else str(codec_id)

    @property
    def timestamp_type(self) -> int:
        """CREATE_TIME or LOG_APPEND_TIME."""
        return LOG_APPEND_TIME if self._header[ATTRIBUTES] & TIMESTAMP_TYPE_MASK else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self._header[ATTRIBUTES] & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self._header[ATTRIBUTES] & CONTROL_MASK != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """Delete horizon of tombstones and markers in this batch (KIP-534), None if the cleaner has set none."""
        return self._header[BASE_TIMESTAMP] if self._header[ATTRIBUTES] & DELETE_HORIZON_MASK else None

    def compute_crc(self) -> int:
        """Compute CRC-32C of the bytes; raises CorruptBatch if the buffer ends inside the batch."""
        self._require_whole()
        with memoryview(self.buffer) as view:
            value: int = crc32c(view[self.position + ATTRIBUTES_POSITION : self.end])
        return value

    def crc_matches(self) -> bool:
        return self.compute_crc() == self._header[CRC]

    def to_bytes(self) -> bytes:
        """Return a copy of the batch; raises CorruptBatch if the buffer ends inside it."""
        self._require_whole()
        return bytes(self.buffer[self.position : self.end])

    def body(self, max_bytes: int = DEFAULT_MAX_BYTES, memory: ReusedMemory | None = None) -> memoryview:
        """Return the records, decompressed to at most `max_bytes`; a view of the buffer if they are not compressed.

        With `memory`, decompressed records are valid until its next use.

        Raises CorruptBatch, and KafkaError as `compression.decompress` does.
        """
        self._require_whole()
        compressed = memoryview(self.buffer)[self.position + HEADER_SIZE : self.end]
        return decompress(self.codec_id, compressed, max_bytes, memory)

    def records(self, max_bytes: int = DEFAULT_MAX_BYTES) -> Iterator[Record]:
        """Iterate over the records in offset order, with the body decompressed to at most `max_bytes`.

        Everything is validated before the first record. Raises CorruptBatch, InvalidRecord, and KafkaError as
        `compression.decompress` does. The CRC is not checked.
        """
        if self.magic != MAGIC_V2:
            raise unsupported_magic(self.magic, self.position)
        body = self.body(max_bytes)
        return self._records(parse_records(body, 0, len(body), self.records_count))

    def records_in_parts(self, size: int, max_bytes: int = DEFAULT_MAX_BYTES) -> Iterator[Iterator[Record]]:
        """Iterate over parts of `size` records, so that a batch of millions takes no more memory than its bytes.

        Damage raises when its part is read, after the parts before it.
        """
        if self.magic != MAGIC_V2:
            raise unsupported_magic(self.magic, self.position)
        if self.records_count <= size:
            yield self.records(max_bytes)
            return
        body = self.body(max_bytes)
        end = len(body)
        position, left, last_delta = 0, self.records_count, -1
        while left:
            count = min(size, left)
            start = position
            try:
                for _ in range(count):
                    zigzag, position = read_unsigned_varint(body, position, end)
                    position += zigzag >> 1
            except ProtocolError as error:
                raise InvalidRecord(str(error)) from error
            left -= count
            parsed = parse_records(body, start, min(position, end) if left else end, count)
            if parsed[0][0] <= last_delta:
                raise InvalidRecord("the offsets of a batch do not rise")
            last_delta = parsed[-1][0]
            yield self._records(parsed)

    def _records(self, parsed: list[_Parsed]) -> Iterator[Record]:
        if parsed and parsed[-1][0] > self.last_offset_delta:
            raise beyond_last_offset()
        base_offset = self.base_offset
        base_timestamp = self.base_timestamp
        append_time = self.max_timestamp if self.timestamp_type == LOG_APPEND_TIME else None
        for offset_delta, timestamp_delta, key, value, headers in parsed:
            timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
            if not _INT64_MIN <= timestamp <= _INT64_MAX:
                raise timestamp_out_of_range(offset_delta)
            yield Record(base_offset + offset_delta, timestamp, key, value, headers, offset_delta)

    def _require_whole(self) -> None:
        if self.end > len(self.buffer):
            raise CorruptBatch("the buffer ends inside a batch", self.position)


def beyond_last_offset() -> InvalidRecord:
    """Return the error for a batch with a record above the last offset in its header."""
    return InvalidRecord("the last record lies beyond the last offset of its batch")


def unsupported_magic(magic: int, position: int) -> KafkaError:
    """Return the error for a batch not in format v2, different for old formats and invalid bytes."""
    if magic in (0, 1):
        return KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"message format v{magic} is not supported (position {position})"
        )
    return CorruptBatch(f"magic {magic} names no message format", position)


def iter_batches(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[BatchView]:
    """Iterate over the complete batches in `buffer[start:end]`; an incomplete last one, as in a fetch, is ignored.

    Raises CorruptBatch for invalid bytes, KafkaError UNSUPPORTED_FOR_MESSAGE_FORMAT for format v0 or v1.
    """
    stop = len(buffer) if end is None else min(end, len(buffer))
    position = start
    while stop - position > MAGIC_POSITION:
        (batch_length,) = _INT32.unpack_from(buffer, position + LENGTH_POSITION)
        magic = buffer[position + MAGIC_POSITION]
        if magic != MAGIC_V2:
            raise unsupported_magic(magic, position)
        if batch_length < MIN_BATCH_LENGTH:
            raise CorruptBatch(f"a batch length of {batch_length} bytes is too small", position)
        if batch_length > stop - position - LOG_OVERHEAD:
            return
        yield BatchView(buffer, position)
        position += LOG_OVERHEAD + batch_length
