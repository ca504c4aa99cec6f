"""Conversion of messages from old producers to a record batch of format v2.

As in Apache Kafka 3.9: a set is messages of one format without compression, or one wrapper; the batch has the codec of
the wrapper, the producer's timestamps (none for v0), no producer id and no headers. Offsets are those of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.common.errors import ErrorCode, KafkaError
from ottla.record.batch import LOG_APPEND_TIME, NO_TIMESTAMP
from ottla.record.builder import RecordData, build_batch
from ottla.record.compression import CODEC_NAMES, NONE
from ottla.record.errors import InvalidRecord
from ottla.record.legacy.message_set import Entry, Unpack, messages_of, read_entry


def batch_of_message_set(view: memoryview, start: int, end: int, unpack: Unpack) -> bytearray:
    """Convert the message set in `view[start:end]` to a batch; a last message that is cut short is ignored.

    Raises KafkaError CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, and the errors of `unpack`.
    """
    first = read_entry(view, start, end)
    if first is None:
        raise InvalidRecord("a message set holds no message")
    if first.codec_id == NONE:
        return build_batch(_plain_records(view, first, end, unpack))
    if first.codec_id >= len(CODEC_NAMES):
        raise InvalidRecord(f"compression codec {first.codec_id} does not exist")
    if read_entry(view, start + first.size_bytes, end) is not None:
        raise InvalidRecord("a compressed message of a producer stands alone in its set")
    return build_batch(_records(first, unpack), compression=CODEC_NAMES[first.codec_id])


def _plain_records(view: memoryview, first: Entry, end: int, unpack: Unpack) -> Iterator[RecordData]:
    entry: Entry | None = first
    while entry is not None:
        if entry.magic != first.magic:
            raise InvalidRecord(f"a message of format v{entry.magic} follows one of format v{first.magic} in a set")
        if entry.codec_id != NONE:
            raise InvalidRecord("a compressed message of a producer stands alone in its set")
        yield from _records(entry, unpack)
        entry = read_entry(view, entry.position + entry.size_bytes, end)


def _records(entry: Entry, unpack: Unpack) -> Iterator[RecordData]:
    if entry.timestamp_type == LOG_APPEND_TIME:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "producers can't set the timestamp type to LogAppendTime")
    for _, timestamp, key, value in messages_of(entry, unpack, of_one_format=True):
        if timestamp < NO_TIMESTAMP:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp} of a message is out of range")
        # A view is written like bytes; only null differs.
        yield RecordData(timestamp, key, value)  # type: ignore[arg-type]
