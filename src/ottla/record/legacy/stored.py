"""Messages of formats v0 and v1 in a log among batches: access to their headers and records like those of batches.

Logs written by Apache Kafka before 0.11 contain them as long as their records are retained, and compaction leaves gaps
in wrappers too. Code that reads headers sees such a message as a batch with only the offset of its last record
(`MessageView`); code that reads records gets batches of format v2 instead. Only the cleaner leaves messages in their
format.

Memory: twice the decompressed size of a wrapper (at most `compression.DEFAULT_MAX_BYTES`), or `_RUN_BYTES` of single
messages.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ottla.common.platform.disk import Buffer
from ottla.record.batch import (
    BATCH_HEADER,
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    BatchView,
    iter_batches,
    unsupported_magic,
)
from ottla.record.builder import RecordData, build_batch_with_gaps
from ottla.record.compression import NONE
from ottla.record.errors import CorruptBatch, InvalidRecord
from ottla.record.legacy.message_set import (
    OLD_MAGICS,
    Entry,
    Message,
    Unpack,
    append_message_set,
    entry_length,
    messages_of,
    read_entry,
)

if TYPE_CHECKING:
    from ottla.common.platform.reused_memory import ReusedMemory

_HEAD = struct.Struct(">qiIbbq")

SMALLEST_SIZE = _HEAD.size
"""Size of the smallest message, one of v0 with neither key nor value; it includes all header fields."""

_RUN_BYTES = 1024 * 1024
_LAST_OFFSET_DELTA = (1 << 31) - 1


def is_message(buffer: Buffer, position: int) -> bool:
    """Return whether the bytes at `position` are of format v0 or v1, by their magic; false if they are cut short."""
    return len(buffer) - position > MAGIC_POSITION and buffer[position + MAGIC_POSITION] in OLD_MAGICS


def header_of_message(buffer: Buffer, position: int) -> BatchHeader:
    """Return the header of a batch with one record at the (last) offset of a v0 or v1 message, without a producer.

    `buffer` has SMALLEST_SIZE bytes of it; nothing is checked.
    """
    offset, length, crc, magic, attributes, timestamp = _HEAD.unpack_from(buffer, position)
    if magic:
        attributes &= COMPRESSION_MASK | TIMESTAMP_TYPE_MASK
    else:
        attributes &= COMPRESSION_MASK
        timestamp = NO_TIMESTAMP
    return (
        offset,
        length,
        NO_PARTITION_LEADER_EPOCH,
        magic,
        crc,
        attributes,
        0,
        timestamp,
        timestamp,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        1,
    )


def header_of_any(buffer: Buffer, position: int) -> BatchHeader | None:
    """Return the header of a batch, or of a message as above; None if it is cut short."""
    left = len(buffer) - position
    if is_message(buffer, position):
        return header_of_message(buffer, position) if left >= SMALLEST_SIZE else None
    if left < HEADER_SIZE:
        return None
    header: BatchHeader = BATCH_HEADER.unpack_from(buffer, position)
    return header


def check_replicated_message(view: memoryview, start: int, end: int) -> BatchHeader:
    """Check a message that a broker wrote; returns its header as above. Raises CorruptBatch."""
    if read_entry(view, start, end) is None:
        raise CorruptBatch("a message is cut short", start)
    return header_of_message(view, start)


class MessageView(BatchView):
    """A message seen by its header, as above; its records are not laid out like those of a batch."""

    __slots__ = ()

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        """Raises CorruptBatch if the header does not fit."""
        if len(buffer) - position < SMALLEST_SIZE:
            raise CorruptBatch("the header of a message is cut short", position)
        self.buffer = buffer
        self.position = position
        self._header = header_of_message(buffer, position)

    def entry(self) -> Entry:
        """Return the message itself, with its CRC checked. Raises CorruptBatch."""
        entry = read_entry(memoryview(self.buffer), self.position, len(self.buffer))
        if entry is None:
            raise CorruptBatch("a message is cut short", self.position)
        return entry

    def crc_matches(self) -> bool:
        """Raises CorruptBatch on a mismatch, too."""
        return bool(self.entry())

    def body(self, max_bytes: int = 0, memory: ReusedMemory | None = None) -> memoryview:
        """Raises KafkaError: a message has no batch records."""
        raise unsupported_magic(self.magic, self.position)

    def first_offset(self) -> int:
        """Offset of the first record, which may be inside of a wrapper. Raises as `messages_of`."""
        return next(messages_of(self.entry())).offset

    def index_records(self, unpack: Unpack) -> tuple[int, bytearray, array[int]]:
        """Return the offset of the first record, the concatenated keys, and rows as of `record.walk.index_records`.

        The rows contain keys and whether values are null, but no times and headers. Raises as `messages_of`, and
        InvalidRecord if offsets do not rise up to that of the message.
        """
        keys = bytearray()
        rows: array[int] = array("q")
        base_offset = last_offset = -1
        for offset, _, key, value in messages_of(self.entry(), unpack):
            if offset <= last_offset:
                raise InvalidRecord(f"offset {offset} of a message follows after {last_offset}")
            if base_offset < 0:
                base_offset = offset
            last_offset = offset
            key_length = -1 if key is None else len(key)
            rows.extend((offset - base_offset, 0, len(keys), key_length, 0, -1 if value is None else 0, 0, 0))
            keys += key or b""
        if last_offset != self.last_offset:
            raise InvalidRecord(f"the last record of the message with offset {self.last_offset} has {last_offset}")
        return base_offset, keys, rows

    def with_records(self, kept: Sequence[int], unpack: Unpack) -> bytearray:
        """Return a message of the same format, codec and timestamp type with only the records numbered in `kept`, which
        rise. Raises as `messages_of`.
        """
        entry = self.entry()
        out = bytearray()
        append_message_set(
            out, _numbered(messages_of(entry, unpack), kept), entry.magic, entry.codec_id, entry.timestamp_type
        )
        return out


def _numbered(messages: Iterator[Message], numbers: Sequence[int]) -> Iterator[Message]:
    wanted = iter(numbers)
    number = next(wanted, -1)
    for at, message in enumerate(messages):
        if at == number:
            yield message
            number = next(wanted, -1)


def view_of_any(buffer: Buffer) -> BatchView:
    """Return the batch or message at the start of `buffer`. Raises CorruptBatch."""
    return MessageView(buffer) if is_message(buffer, 0) else BatchView(buffer)


def iter_views(buffer: Buffer) -> Iterator[BatchView]:
    """Iterate over the whole batches and messages in `buffer`, without an incomplete last one. Raises CorruptBatch."""
    view = memoryview(buffer)
    position = 0
    while len(view) - position > MAGIC_POSITION:
        if view[position + MAGIC_POSITION] in OLD_MAGICS:
            length = entry_length(view, position, len(view))
            if length < 0:
                return
            yield MessageView(buffer, position)
            position += LOG_OVERHEAD + length
        else:
            batch = next(iter_batches(buffer, position), None)
            if batch is None:
                return
            yield batch
            position = batch.end


def whole_size(buffer: Buffer) -> int:
    """Return the size of the whole messages and batches in `buffer`, by their lengths. Raises CorruptBatch."""
    view = memoryview(buffer)
    position = 0
    while (length := entry_length(view, position, len(view))) >= 0:
        position += LOG_OVERHEAD + length
    return position


def iter_any_batches(buffer: Buffer) -> Iterator[BatchView]:
    """Iterate over the complete batches in `buffer`, with batches in place of messages; ignores an incomplete last one.

    Raises CorruptBatch, InvalidRecord, and KafkaError as `compression.decompress` does.
    """
    view = memoryview(buffer)
    position = 0
    while len(view) - position > MAGIC_POSITION:
        if view[position + MAGIC_POSITION] in OLD_MAGICS:
            first = read_entry(view, position, len(view))
            if first is None:
                return
            run = _run(view, first)
            yield batch_of_messages(run)
            position = run[-1].position + run[-1].size_bytes
        else:
            batch = next(iter_batches(buffer, position), None)
            if batch is None:
                return
            yield batch
            position = batch.end


def _run(view: memoryview, first: Entry) -> list[Entry]:
    """Return the wrapper, or the uncompressed messages that fit into one batch with the first."""
    run = [first]
    if first.codec_id != NONE:
        return run
    end = min(len(view), first.position + max(_RUN_BYTES, first.size_bytes))
    last = first
    while is_message(view, last.position + last.size_bytes):
        one = read_entry(view, last.position + last.size_bytes, end)
        if (
            one is None
            or one.codec_id != NONE
            or one.timestamp_type != first.timestamp_type
            or (one.timestamp_type == LOG_APPEND_TIME and one.timestamp_ms != first.timestamp_ms)
            or one.offset - first.offset > _LAST_OFFSET_DELTA
        ):
            break
        run.append(one)
        last = one
    return run


def batch_of_messages(run: list[Entry]) -> BatchView:
    """Return an uncompressed batch with the records, offsets and times of messages.

    All of them have the same timestamp type, and one time if that is LogAppendTime. Raises as above.
    """
    messages = chain.from_iterable(map(messages_of, run))
    records = iter(messages)
    first = next(records)
    base_offset = last_offset = first.offset

    def numbered() -> Iterator[tuple[int, RecordData]]:
        nonlocal last_offset
        for message in chain((first,), records):
            delta = message.offset - base_offset
            if message is not first and not last_offset - base_offset < delta <= _LAST_OFFSET_DELTA:
                raise InvalidRecord(f"offset {message.offset} of a message follows after {last_offset}")
            last_offset = message.offset
            # A view is written like bytes; only null differs.
            yield delta, RecordData(message.timestamp_ms, message.key, message.value)  # type: ignore[arg-type]

    return BatchView(build_batch_with_gaps(numbered(), base_offset, run[0].timestamp_type))
