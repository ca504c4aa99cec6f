"""Conversion of entries for old consumers: newer formats become message format v0 or v1.

As in Apache Kafka 3.9: control batches and headers are dropped, records of aborted transactions are not (old versions
read uncommitted). Compressed batches become wrappers of the same codec, zstd can't be converted, and entries in an old
format stay unchanged. From an uncompressed batch records below the requested offset are dropped.

Memory: one decompressed batch of at most `compression.DEFAULT_MAX_BYTES`, 64 bytes for each of its records, of which
there are at most `MAX_CONVERTED_RECORDS`, its converted form, and `max_bytes` of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.record import walk
from ottla.record.batch import LOG_APPEND_TIME, LOG_OVERHEAD, MAGIC_POSITION, MAGIC_V2, NO_TIMESTAMP, BatchView
from ottla.record.compression import NONE, ZSTD
from ottla.record.errors import CorruptBatch, InvalidRecord
from ottla.record.legacy.message_set import (
    Message,
    append_message_set,
    entry_length,
    messages_of,
    read_entry,
)

MAX_CONVERTED_RECORDS = 2_000_000
"""Maximum number of converted records in one batch; a batch of a megabyte with more is a bomb."""


class ConversionResult(NamedTuple):
    """Message sets, the offset behind the last processed batch, including dropped ones, and the converted records."""

    data: bytes
    next_offset: int
    record_count: int


def convert_down(view: memoryview, magic: int, first_offset: int, max_bytes: int) -> ConversionResult:
    """Convert the whole entries in `view` to format `magic` or older, at least one, until they have `max_bytes`.

    Raises KafkaError: UNSUPPORTED_COMPRESSION_TYPE if zstd comes first (entries before it are returned alone), else
    CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE.
    """
    out = bytearray()
    position = 0
    next_offset = first_offset
    record_count = 0
    while len(out) < max_bytes or not out:
        length = entry_length(view, position, len(view))
        if length < 0:
            break
        size = LOG_OVERHEAD + length
        try:
            if view[position + MAGIC_POSITION] == MAGIC_V2:
                next_offset, count = _append_batch(out, BatchView(view, position), magic, first_offset)
            else:
                next_offset, count = _append_entry(out, view, position, magic, first_offset)
        except KafkaError:
            if out:
                break
            raise
        position += size
        record_count += count
    return ConversionResult(bytes(out), next_offset, record_count)


def _append_batch(out: bytearray, batch: BatchView, magic: int, first_offset: int) -> tuple[int, int]:
    """The offset behind the batch, and the number of appended messages."""
    if batch.is_control or not batch.records_count:
        return batch.next_offset, 0
    if batch.codec_id == ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd can't be converted to message format v{magic} (KIP-110)"
        )
    if batch.records_count > MAX_CONVERTED_RECORDS:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {batch.records_count} records is too large to be converted to message format v{magic}",
        )
    messages = _messages(batch, first_offset)
    return batch.next_offset, append_message_set(out, messages, magic, batch.codec_id, batch.timestamp_type)


def _messages(batch: BatchView, first_offset: int) -> Iterator[Message]:
    body = batch.body()
    base_offset, base_timestamp, max_timestamp = batch.base_offset, batch.base_timestamp, batch.max_timestamp
    by_append_time = batch.timestamp_type == LOG_APPEND_TIME
    lowest = first_offset if batch.codec_id == NONE else base_offset
    index = walk.index_records(body, 0, len(body), batch.records_count)
    if index[-walk.INDEX_WIDTH] > batch.last_offset_delta:
        raise InvalidRecord("the last record lies beyond the last offset of its batch")
    for at in range(0, len(index), walk.INDEX_WIDTH):
        offset_delta, timestamp_delta, key_start, key_size, value_start, value_size = index[at : at + 6]
        offset = base_offset + offset_delta
        if offset < lowest:
            continue
        timestamp = max_timestamp if by_append_time else max(base_timestamp + timestamp_delta, NO_TIMESTAMP)
        yield Message(
            offset,
            timestamp,
            body[key_start : key_start + key_size] if key_size >= 0 else None,
            body[value_start : value_start + value_size] if value_size >= 0 else None,
        )


def _append_entry(out: bytearray, view: memoryview, position: int, magic: int, first_offset: int) -> tuple[int, int]:
    """The offset behind the entry, and the number of messages converted for it."""
    entry = read_entry(view, position, len(view))
    if entry is None:
        raise CorruptBatch("a message is cut short", position)
    count = 0
    if entry.magic <= magic:
        out += view[position : position + entry.size_bytes]
    elif entry.codec_id != NONE or entry.offset >= first_offset:
        count = append_message_set(out, messages_of(entry), magic, entry.codec_id, entry.timestamp_type)
    return entry.offset + 1, count
