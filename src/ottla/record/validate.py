"""Checks of every batch before it is stored, and the two patches that storing needs. Hot.

The broker parses the 61 bytes of the header and computes one CRC over the rest; no record is touched. A client's record
count must be possible for the number of bytes, so that claimed records cannot use up offsets. `check_batch` is for
batches from clients, `check_replicated_batch` for those that a broker wrote: replication, the broker's own topics,
recovery. Neither reads behind the batch: a caller that permits only one compares the size.

One field is corrected instead of rejected: Sarama sets the max timestamp to -1. Apache Kafka corrects it too, since
time index, retention and ListOffsets depend on it. Only then the records are read, and decompressed: the caller passes
the function, and does it off the loop.

Not checked here: timestamps against the topic's limits and the clock, sequences against the producer's state
(storage), the records themselves (`walk.walk_records`), the content of a compressed batch, too large a max timestamp.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.disk import Buffer
from ottla.record.batch import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    BATCH_HEADER,
    BATCH_LENGTH,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CRC,
    CRC_POSITION,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH_POSITION,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    MAGIC_V2,
    MAX_TIMESTAMP_POSITION,
    MIN_BATCH_LENGTH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PRODUCER_EPOCH,
    RECORDS_COUNT,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    unsupported_magic,
)
from ottla.record.checksum import crc32c
from ottla.record.compression import DEFAULT_MAX_BYTES, MAX_RATIO, ZSTD, decompress
from ottla.record.errors import CorruptBatch, InvalidRecord
from ottla.record.legacy.stored import check_replicated_message, is_message
from ottla.record.walk import max_timestamp as max_timestamp_of
from ottla.record.walk import usual_header

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")
_SPECIAL_ATTRIBUTES = CONTROL_MASK | TIMESTAMP_TYPE_MASK | DELETE_HORIZON_MASK | TRANSACTIONAL_MASK
_INT64_MAX = (1 << 63) - 1
_MIN_RECORD_SIZE = 7

_MAX_RECORDS = DEFAULT_MAX_BYTES // _MIN_RECORD_SIZE
"""Maximum record count: a larger batch cannot be decompressed, so its offsets would be wasted."""

Decompress = Callable[[int, Buffer], memoryview]
"""Decompressed bytes, by codec id; raises KafkaError."""


def _check_intact(buffer: Buffer, view: memoryview, start: int, end: int) -> BatchHeader:
    """Magic, length and CRC."""
    if end - start < HEADER_SIZE:
        if end - start > MAGIC_POSITION and buffer[start + MAGIC_POSITION] != MAGIC_V2:
            raise unsupported_magic(buffer[start + MAGIC_POSITION], start)
        raise CorruptBatch("a batch header is cut short", start)
    header: BatchHeader = BATCH_HEADER.unpack_from(buffer, start)
    if header[MAGIC] != MAGIC_V2:
        raise unsupported_magic(header[MAGIC], start)
    batch_length = header[BATCH_LENGTH]
    if batch_length < MIN_BATCH_LENGTH or batch_length > end - start - LOG_OVERHEAD:
        raise CorruptBatch(f"a batch length of {batch_length} bytes does not fit", start)
    if crc32c(view[start + ATTRIBUTES_POSITION : start + LOG_OVERHEAD + batch_length]) != header[CRC]:
        raise CorruptBatch("the CRC of a batch does not match", start)
    return header


def check_batch(
    buffer: bytearray, view: memoryview, start: int, end: int, unpack: Decompress = decompress
) -> BatchHeader:
    """Check the client's batch at `buffer[start:end]` (`view` is a memoryview of the same buffer); returns its header.

    The batch may end before `end`. A max timestamp below the base timestamp, or below -1, is replaced in place by the
    records' own, or by -1 if they are all from before 1970, and the CRC renewed; `unpack` decompresses for that.

    Raises KafkaError: CORRUPT_MESSAGE (length, magic, CRC), UNSUPPORTED_FOR_MESSAGE_FORMAT (formats v0, v1),
    INVALID_TIMESTAMP, INVALID_RECORD (counts, control bit, codec, producer fields).
    """
    header = usual_header(buffer, start, end)
    if header is not None:
        batch_end = start + LOG_OVERHEAD + header[BATCH_LENGTH]
        if crc32c(view[start + ATTRIBUTES_POSITION : batch_end]) == header[CRC]:
            return header
    return _check_any_batch(buffer, view, start, end, unpack)


def _check_any_batch(
    buffer: bytearray, view: memoryview, start: int, end: int, unpack: Decompress = decompress
) -> BatchHeader:
    """`check_batch`, the reference: every check by itself, in the order of the errors."""
    header = _check_intact(buffer, view, start, end)
    _, batch_length, _, _, _, attributes, last_offset_delta, base_timestamp, max_timestamp, producer_id, _, _, count = (
        header
    )
    if count <= 0 or count != last_offset_delta + 1:
        raise InvalidRecord(f"{count} records contradict a last offset delta of {last_offset_delta}")
    if attributes & _SPECIAL_ATTRIBUTES:
        _check_attributes(attributes, producer_id)
    codec_id = attributes & COMPRESSION_MASK
    if codec_id > ZSTD:
        raise InvalidRecord(f"compression codec {codec_id} does not exist")
    if count * _MIN_RECORD_SIZE > (batch_length - MIN_BATCH_LENGTH) * MAX_RATIO[codec_id] or count > _MAX_RECORDS:
        raise InvalidRecord(f"{count} records do not fit {batch_length} bytes of codec {codec_id}")
    if producer_id != NO_PRODUCER_ID:
        producer_epoch, base_sequence = header[PRODUCER_EPOCH], header[BASE_SEQUENCE]
        if producer_id < 0 or producer_epoch < 0 or base_sequence < 0:
            raise InvalidRecord(
                f"producer epoch {producer_epoch} or sequence {base_sequence} is invalid beside a producer id"
            )
    if max_timestamp < base_timestamp or max_timestamp < NO_TIMESTAMP:  # as in `lacks_max_timestamp`
        return _set_max_timestamp(buffer, start, header, unpack)
    return header


def lacks_max_timestamp(base_timestamp: int, max_timestamp: int) -> bool:
    """Return whether a header's max timestamp can't be that of its records, so that `check_batch` reads them."""
    return max_timestamp < base_timestamp or max_timestamp < NO_TIMESTAMP


def _invalid_timestamp(base_timestamp: int, max_timestamp: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TIMESTAMP,
        f"base timestamp {base_timestamp} with max timestamp {max_timestamp} is out of range",
    )


def _set_max_timestamp(buffer: bytearray, start: int, header: BatchHeader, unpack: Decompress) -> BatchHeader:
    """Set the largest timestamp of the records in a batch with a valid header; returns the new header."""
    end = start + LOG_OVERHEAD + header[BATCH_LENGTH]
    with memoryview(buffer) as whole, whole[start + HEADER_SIZE : end] as stored:
        with unpack(header[ATTRIBUTES] & COMPRESSION_MASK, stored) as body:
            timestamp_delta, _ = max_timestamp_of(body, 0, len(body), header[RECORDS_COUNT])
        # Apache Kafka starts at -1: records that are all from before 1970 have no place in a time index.
        corrected = max(header[BASE_TIMESTAMP] + timestamp_delta, NO_TIMESTAMP)
        if corrected > _INT64_MAX:
            raise _invalid_timestamp(header[BASE_TIMESTAMP], corrected)
        _INT64.pack_into(buffer, start + MAX_TIMESTAMP_POSITION, corrected)
        _UINT32.pack_into(buffer, start + CRC_POSITION, crc32c(whole[start + ATTRIBUTES_POSITION : end]))
    renewed: BatchHeader = BATCH_HEADER.unpack_from(buffer, start)
    return renewed


def _check_attributes(attributes: int, producer_id: int) -> None:
    if attributes & CONTROL_MASK:
        raise InvalidRecord("clients can't write control records")
    if attributes & TIMESTAMP_TYPE_MASK:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "producers can't set the timestamp type to LogAppendTime")
    if attributes & DELETE_HORIZON_MASK:
        raise InvalidRecord("clients can't set a delete horizon")
    if attributes & TRANSACTIONAL_MASK and producer_id == NO_PRODUCER_ID:
        raise InvalidRecord("a transactional batch needs a producer id")


def check_replicated_batch(buffer: Buffer, view: memoryview, start: int, end: int) -> BatchHeader:
    """Check a batch that a broker wrote (or is about to): intact, and its counts possible after compaction. A message
    of format v0 or v1 is accepted too, with the header of `legacy.stored.header_of_message`.

    Raises KafkaError CORRUPT_MESSAGE.
    """
    if is_message(view, start):
        return check_replicated_message(view, start, end)
    header = _check_intact(buffer, view, start, end)
    count, last_offset_delta = header[RECORDS_COUNT], header[LAST_OFFSET_DELTA]
    if last_offset_delta < 0 or not 0 <= count <= last_offset_delta + 1:
        raise CorruptBatch(f"{count} records contradict a last offset delta of {last_offset_delta}", start)
    return header


def patch_batch(buffer: bytearray | memoryview, start: int, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch in place; the CRC covers neither."""
    _INT64.pack_into(buffer, start, base_offset)
    _INT32.pack_into(buffer, start + LEADER_EPOCH_POSITION, leader_epoch)


def set_log_append_time(buffer: bytearray | memoryview, start: int, timestamp: int) -> None:
    """Set the timestamp of all records of a checked batch to `timestamp` (ms), and renew the CRC."""
    (batch_length,) = _INT32.unpack_from(buffer, start + LENGTH_POSITION)
    (attributes,) = _INT16.unpack_from(buffer, start + ATTRIBUTES_POSITION)
    _INT16.pack_into(buffer, start + ATTRIBUTES_POSITION, attributes | TIMESTAMP_TYPE_MASK)
    _INT64.pack_into(buffer, start + MAX_TIMESTAMP_POSITION, timestamp)
    with memoryview(buffer) as view:
        crc = crc32c(view[start + ATTRIBUTES_POSITION : start + LOG_OVERHEAD + batch_length])
    _UINT32.pack_into(buffer, start + CRC_POSITION, crc)
