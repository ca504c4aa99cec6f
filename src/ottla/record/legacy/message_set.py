"""Message sets of formats v0 and v1, parsed with the limits that untrusted bytes need.

A set is a sequence of messages. A message is a record, or a wrapper: its value is a compressed set of its own with
records only. Nested wrappers are rejected, as in Apache Kafka. Offsets within a wrapper of v0 are absolute; in v1 they
are relative, and the wrapper has the offset of its last one. v1 has timestamps: one for each message, or that of the
wrapper for all if the broker set it (LogAppendTime). The CRC (CRC-32) covers a message from its magic on, also within
wrappers. A wrapper may contain messages of the other format, since brokers once wrote them (KAFKA-4298): offsets follow
the format of the wrapper, timestamps that of the message. Producers may not send one.

Invariant: a length is trusted for an allocation only if as many bytes are present. A set decompresses to at most the
limit of `unpack`, and one message of it is in memory at a time.

A topic's checks of records are in `storage.log.append_rules`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ottla.common.platform.disk import Buffer
from ottla.record.batch import (
    COMPRESSION_MASK,
    CREATE_TIME,
    LENGTH_POSITION,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
)
from ottla.record.compression import LZ4, NONE, ZSTD, compress, decompress
from ottla.record.errors import CorruptBatch, InvalidRecord
from ottla.record.legacy.lz4_frame import with_right_checksum, with_wrong_checksum

MAGIC_V0 = 0
MAGIC_V1 = 1
OLD_MAGICS = (MAGIC_V0, MAGIC_V1)

MIN_MESSAGE_LENGTH = (14, 22)
"""Value of the length field for a message with neither key nor value, by magic."""

Unpack = Callable[[int, Buffer], memoryview]
"""Decompressed bytes, by codec id; raises KafkaError."""

_OFFSET_LENGTH = struct.Struct(">qi")
_CRC_MAGIC_ATTRIBUTES = struct.Struct(">Ibb")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_PREFIX_SIZE = LOG_OVERHEAD + _CRC_MAGIC_ATTRIBUTES.size
_CRC = struct.Struct(">I")


class Message(NamedTuple):
    """A record of an old format; `timestamp_ms` is NO_TIMESTAMP in v0."""

    offset: int
    timestamp_ms: int
    key: Buffer | None
    value: Buffer | None


class Entry(NamedTuple):
    """A message in a buffer: a record, or a wrapper."""

    position: int
    size_bytes: int
    offset: int
    """Offset of the record; of the last one for a wrapper."""
    magic: int
    attributes: int
    timestamp_ms: int
    key: memoryview | None
    value: memoryview | None

    @property
    def codec_id(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """CREATE_TIME or LOG_APPEND_TIME; v0 has no timestamps, and counts as CREATE_TIME."""
        return LOG_APPEND_TIME if self.magic and self.attributes & TIMESTAMP_TYPE_MASK else CREATE_TIME


def unpack_by_default(codec_id: int, data: Buffer) -> memoryview:
    """`compression.decompress` with its default limit, as an `Unpack`."""
    return decompress(codec_id, data)


def entry_length(view: memoryview, position: int, end: int) -> int:
    """Return the length stated by an entry of any format at `position`; -1 if it is cut short.

    Raises CorruptBatch for an impossible length.
    """
    if end - position < LOG_OVERHEAD:
        return -1
    (length,) = _INT32.unpack_from(view, position + LENGTH_POSITION)
    if length < MIN_MESSAGE_LENGTH[MAGIC_V0]:
        raise CorruptBatch(f"a message length of {length} bytes is too small", position)
    return -1 if length > end - position - LOG_OVERHEAD else int(length)


def read_entry(view: memoryview, position: int, end: int) -> Entry | None:
    """Return the message at `position`, with its CRC checked; None if it is cut short, as in a fetch.

    Raises CorruptBatch, and InvalidRecord for another format.
    """
    length = entry_length(view, position, end)
    if length < 0:
        return None
    stop = position + LOG_OVERHEAD + length
    crc, magic, attributes = _CRC_MAGIC_ATTRIBUTES.unpack_from(view, position + LOG_OVERHEAD)
    if magic not in OLD_MAGICS:
        raise InvalidRecord(f"a message set holds an entry with magic {magic}")
    if length < MIN_MESSAGE_LENGTH[magic]:
        raise CorruptBatch(f"a message length of {length} bytes is too small for format v{magic}", position)
    if zlib.crc32(view[position + MAGIC_POSITION : stop]) != crc:
        raise CorruptBatch("the CRC of a message does not match its bytes", position)
    (offset,) = _INT64.unpack_from(view, position)
    cursor = position + _PREFIX_SIZE
    timestamp = NO_TIMESTAMP
    if magic:
        (timestamp,) = _INT64.unpack_from(view, cursor)
        cursor += 8
    key, cursor = _read_bytes(view, cursor, stop, position)
    value, _ = _read_bytes(view, cursor, stop, position)
    return Entry(position, stop - position, offset, magic, attributes, timestamp, key, value)


def _read_bytes(view: memoryview, cursor: int, stop: int, position: int) -> tuple[memoryview | None, int]:
    if stop - cursor < 4:
        raise CorruptBatch("a message ends before its key or value", position)
    (size,) = _INT32.unpack_from(view, cursor)
    cursor += 4
    if size == -1:
        return None, cursor
    if not 0 <= size <= stop - cursor:
        raise CorruptBatch("the key or value of a message does not fit its bytes", position)
    return view[cursor : cursor + size], cursor + size


def messages_of(entry: Entry, unpack: Unpack = unpack_by_default, *, of_one_format: bool = False) -> Iterator[Message]:
    """Iterate over the records of an entry in order, with absolute offsets; keys and values are views.

    `of_one_format`: a wrapper with messages of the other format is rejected too. Raises CorruptBatch, InvalidRecord,
    and the errors of `unpack`.
    """
    if entry.codec_id == NONE:
        yield Message(entry.offset, entry.timestamp_ms, entry.key, entry.value)
        return
    body = unpack_wrapper(entry, unpack)
    last_offset = _last_inner_offset(body)
    shift = 0
    # An offset of 0 is from a producer that sets none (librdkafka): the broker assigns it.
    if entry.magic == MAGIC_V1 and entry.offset != 0:
        if entry.offset < last_offset:
            raise InvalidRecord(f"a wrapper has offset {entry.offset}, below that of its last message, {last_offset}")
        shift = entry.offset - last_offset
    append_time = entry.timestamp_ms if entry.timestamp_type == LOG_APPEND_TIME else None
    position = 0
    while (inner := read_entry(body, position, len(body))) is not None:
        if of_one_format and inner.magic != entry.magic:
            raise InvalidRecord(f"a compressed message of format v{entry.magic} holds one of format v{inner.magic}")
        if inner.codec_id != NONE:
            raise InvalidRecord("a message within a compressed one is compressed itself")
        timestamp = inner.timestamp_ms if append_time is None or inner.magic == MAGIC_V0 else append_time
        yield Message(inner.offset + shift, timestamp, inner.key, inner.value)
        position += inner.size_bytes


def unpack_wrapper(entry: Entry, unpack: Unpack) -> memoryview:
    """Return the set within a wrapper. Raises InvalidRecord for an invalid wrapper, and the errors of `unpack`."""
    if entry.value is None:
        raise InvalidRecord("a compressed message has no value")
    if entry.codec_id == ZSTD:
        raise InvalidRecord(f"message format v{entry.magic} knows no zstd")
    if entry.codec_id == LZ4 and entry.magic == MAGIC_V0:
        return unpack(LZ4, with_right_checksum(entry.value))
    return unpack(entry.codec_id, entry.value)


def _last_inner_offset(body: memoryview) -> int:
    """Return the last offset of a set, by a first pass over the lengths alone."""
    position = 0
    last = -1
    while (length := entry_length(body, position, len(body))) >= 0:
        last = position
        position += LOG_OVERHEAD + length
    if last < 0:
        raise InvalidRecord("a compressed message holds no messages")
    (offset,) = _INT64.unpack_from(body, last)
    return int(offset)


def append_message(
    out: bytearray,
    magic: int,
    attributes: int,
    offset: int,
    timestamp_ms: int,
    key: Buffer | None,
    value: Buffer | None,
) -> None:
    """Append one message to `out`."""
    parts = [bytes((magic, attributes))]
    if magic:
        parts.append(_INT64.pack(timestamp_ms))
    for field in (key, value):
        if field is None:
            parts.append(_INT32.pack(-1))
        else:
            parts.append(_INT32.pack(len(field)))
            parts.append(bytes(field))
    content = b"".join(parts)
    out += _OFFSET_LENGTH.pack(offset, len(content) + _CRC.size)
    out += _CRC.pack(zlib.crc32(content))
    out += content


def append_message_set(
    out: bytearray, messages: Iterable[Message], magic: int, codec_id: int, timestamp_type: int = CREATE_TIME
) -> int:
    """Append messages in the order of their offsets to `out`, one by one or within one wrapper; returns their number.

    Raises KafkaError UNSUPPORTED_COMPRESSION_TYPE for an unknown codec.
    """
    time_bit = TIMESTAMP_TYPE_MASK if magic and timestamp_type == LOG_APPEND_TIME else 0
    count = 0
    if codec_id == NONE:
        for offset, timestamp, key, value in messages:
            append_message(out, magic, time_bit, offset, timestamp, key, value)
            count += 1
        return count
    inner = bytearray()
    base_offset = last_offset = -1
    max_timestamp = NO_TIMESTAMP
    for offset, timestamp, key, value in messages:
        if base_offset < 0:
            base_offset = offset
        append_message(inner, magic, time_bit, offset - base_offset if magic else offset, timestamp, key, value)
        last_offset = offset
        max_timestamp = max(max_timestamp, timestamp)
        count += 1
    if not count:
        return 0
    data: Buffer = compress(codec_id, inner)
    if codec_id == LZ4 and magic == MAGIC_V0:
        data = with_wrong_checksum(data)
    append_message(out, magic, codec_id | time_bit, last_offset, max_timestamp, None, data)
    return count
