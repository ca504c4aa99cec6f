"""Checks of a client's batch against the topic's configuration, after those of every batch (`record.validate`).

Runs once a batch, on the append path: it must stay flat. The record walk covers uncompressed batches. A compressed
batch is decompressed in these cases:

- the topic is compacted, has its own codec or bounds the record size;
- the header omits the largest timestamp;
- the header is out of range, so that the response names the records (KIP-467).

`needs_decompression` tests for them beforehand, and `prepare_batch` does the work off the loop.

Sequence numbers of producers are in `producer_state`. Single timestamps are not checked if those of the header are in
range and nothing else requires decompression; neither are Apache Kafka's further checks of compressed batches.
"""

from __future__ import annotations

import struct
from typing import NoReturn

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.clock import Clock
from ottla.common.platform.disk import Buffer
from ottla.record.batch import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BASE_TIMESTAMP_POSITION,
    BATCH_HEADER,
    BATCH_LENGTH,
    COMPRESSION_MASK,
    CRC_POSITION,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    RECORDS_COUNT,
    BatchHeader,
)
from ottla.record.checksum import crc32c
from ottla.record.compression import CODEC_IDS, DEFAULT_MAX_BYTES, GZIP, LZ4, NONE, ZSTD, compress, decompress
from ottla.record.errors import InvalidRecord, RecordsRefused
from ottla.record.validate import check_batch, lacks_max_timestamp
from ottla.record.walk import oversized_record, refused_records
from ottla.storage.files.log_config import MAX_LONG, LogConfig
from ottla.storage.files.off_loop import DecompressionSliceExceeded

PRODUCER_CODEC = "producer"
LOG_APPEND_TIME = "LogAppendTime"
_CRC = struct.Struct(">I")
_TIMESTAMPS = struct.Struct(">qq")
_ATTRIBUTES_LOW_BYTE = ATTRIBUTES_POSITION + 1
_DEFAULT_AFTER_MAX_MS = LogConfig().message_timestamp_after_max_ms

MAX_NAMED_RECORDS = 1000
"""Maximum number of records in one rejection; their error messages are longer than the records may be."""

MAX_BYTES_PER_REQUEST = 2 * DEFAULT_MAX_BYTES
"""Decompressed bytes for all batches of one request. The first batch may always use its whole limit."""


class DecompressionBudget:
    """Limit of the decompression work of one request, however many batches it has, and of one turn.

    `turn_bytes` is the limit of one batch in the current turn.
    """

    __slots__ = ("left", "turn_bytes")

    def __init__(self) -> None:
        self.left = MAX_BYTES_PER_REQUEST
        self.turn_bytes = DEFAULT_MAX_BYTES

    def decompress(self, codec_id: int, stored: Buffer) -> memoryview:
        """Return the decompressed bytes of `stored`. Rejected data is charged with its maximum size.

        Raises KafkaError as `compression.decompress`, and REQUEST_TIMED_OUT if the budget is exhausted: the client
        retries the remaining batches. Raises `DecompressionSliceExceeded` if the slice is too short, without a charge.
        """
        limit = min(self.left, self.turn_bytes, DEFAULT_MAX_BYTES)
        if limit > 0:
            try:
                body = decompress(codec_id, stored, limit)
            except KafkaError as error:
                if error.code == ErrorCode.MESSAGE_TOO_LARGE and limit < min(self.left, DEFAULT_MAX_BYTES):
                    raise DecompressionSliceExceeded from None
                self.left -= limit
                if error.code != ErrorCode.MESSAGE_TOO_LARGE or limit == DEFAULT_MAX_BYTES:
                    raise
            else:
                self.left -= len(body)
                return body
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the batches of this request decompress to more than {MAX_BYTES_PER_REQUEST} bytes",
        )


def timestamps_out_of_range(base_timestamp: int, max_timestamp: int, now_ms: int, config: LogConfig) -> bool:
    """Return whether the header of a batch violates the topic's limits for CreateTime."""
    return max_timestamp - now_ms > config.message_timestamp_after_max_ms or (
        base_timestamp != NO_TIMESTAMP and now_ms - base_timestamp > config.message_timestamp_before_max_ms
    )


def check_records(
    buffer: Buffer, start: int, end: int, header: BatchHeader, now_ms: int, config: LogConfig, partition: str
) -> None:
    """Check the decompressed records at `buffer[start:end]` against the requirements of their topic.

    Raises KafkaError INVALID_RECORD for the first malformed record, and `RecordsRefused` with the reasons for records
    without a key or with a timestamp out of range.
    """
    earliest, latest = -MAX_LONG, MAX_LONG
    if config.message_timestamp_type != LOG_APPEND_TIME:
        earliest = now_ms - config.message_timestamp_before_max_ms
        latest = min(now_ms + config.message_timestamp_after_max_ms, MAX_LONG)
    count, base_timestamp = header[RECORDS_COUNT], header[BASE_TIMESTAMP]
    total, broken = refused_records(
        buffer, start, end, count, config.compacted, base_timestamp, earliest, latest, MAX_NAMED_RECORDS
    )
    if not total:
        return
    named = tuple(
        (
            number,
            f"Compacted topic cannot accept message without key in topic partition {partition}"
            if keyless
            else f"Timestamp {timestamp} of message with offset {header[BASE_OFFSET] + number} is out of range. "
            f"The timestamp should be within [{earliest}, {latest}]",
        )
        for number, timestamp, keyless in broken
    )
    if all(keyless for _, _, keyless in broken):
        shown = ", ".join(f"RecordError(batchIndex={number}, message='{reason}')" for number, reason in named[:3])
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {total} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]",
            named,
        )
    raise RecordsRefused(
        ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp", named
    )


def refuse_timestamps(
    buffer: Buffer, start: int, end: int, header: BatchHeader, now_ms: int, config: LogConfig, partition: str
) -> NoReturn:
    """Reject a batch with a header out of range: with the records from `start` to `end` if they show it, else with the
    header. Raises KafkaError INVALID_TIMESTAMP, and the errors of `check_records`.
    """
    if start < end:
        check_records(buffer, start, end, header, now_ms, config, partition)
    raise KafkaError(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamps {header[BASE_TIMESTAMP]} to {header[MAX_TIMESTAMP]} of a batch are out of range: "
        f"the broker's clock is at {now_ms} "
        f"(message.timestamp.before.max.ms={config.message_timestamp_before_max_ms}, "
        f"message.timestamp.after.max.ms={config.message_timestamp_after_max_ms})",
    )


def has_doubtful_timestamps(buffer: bytearray, start: int, clock: Clock) -> bool:
    """Return whether the batch at `start` is compressed and its header omits the largest timestamp of its records, or
    names one that topics with default settings reject: then `needs_decompression` decides.
    """
    if not buffer[start + _ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK:
        return False
    base_timestamp, max_timestamp = _TIMESTAMPS.unpack_from(buffer, start + BASE_TIMESTAMP_POSITION)
    doubtful: bool = (
        lacks_max_timestamp(base_timestamp, max_timestamp) or max_timestamp - clock.time_ms() > _DEFAULT_AFTER_MAX_MS
    )
    return doubtful


def narrows_timestamps(config: LogConfig) -> bool:
    """Return whether a topic rejects timestamps that `has_doubtful_timestamps` does not detect."""
    return (
        config.message_timestamp_before_max_ms < MAX_LONG
        or config.message_timestamp_after_max_ms < _DEFAULT_AFTER_MAX_MS
    )


def narrows_record_size(config: LogConfig) -> bool:
    """Return whether a topic rejects compressed records that the limit of a decompressed batch permits."""
    return config.max_decompressed_message_bytes < DEFAULT_MAX_BYTES


def inspects(config: LogConfig) -> bool:
    """Return whether a topic's settings require a check of batches with a valid header."""
    return (
        config.compacted
        or config.compression_type != PRODUCER_CODEC
        or narrows_timestamps(config)
        or narrows_record_size(config)
    )


def needs_decompression(buffer: bytearray, start: int, now_ms: int, config: LogConfig) -> bool:
    """Return whether appending or rejecting the batch at `start` decompresses or compresses, which costs loop time."""
    codec = buffer[start + _ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK
    if needs_recompression(codec, config):
        return True
    if codec == 0:
        return False
    if config.compacted or narrows_record_size(config):
        return True
    base_timestamp, max_timestamp = _TIMESTAMPS.unpack_from(buffer, start + BASE_TIMESTAMP_POSITION)
    return lacks_max_timestamp(base_timestamp, max_timestamp) or _is_late(base_timestamp, max_timestamp, now_ms, config)


def _is_late(base_timestamp: int, max_timestamp: int, now_ms: int, config: LogConfig) -> bool:
    return config.message_timestamp_type != LOG_APPEND_TIME and timestamps_out_of_range(
        base_timestamp, max_timestamp, now_ms, config
    )


def prepare_batch(
    buffer: bytearray,
    start: int,
    end: int,
    now_ms: int,
    config: LogConfig,
    partition: str,
    budget: DecompressionBudget,
) -> bytearray:
    """Do the part of an append that decompresses, for a pool thread: touches its arguments only.

    `partition` (topic-index) and `now_ms` are for error messages of rejected records. Returns the batch to append, with
    `prepared=True`. Raises as `Log.append_as_leader` and `DecompressionBudget.decompress`.
    """
    if end - start > config.max_message_bytes:
        return buffer[start:end]
    with memoryview(buffer) as view:
        header = check_batch(buffer, view, start, end, budget.decompress)
        if header[BATCH_LENGTH] + LOG_OVERHEAD != end - start:
            return buffer[start:end]
        codec_id = header[ATTRIBUTES] & COMPRESSION_MASK
        recompressed = needs_recompression(header[ATTRIBUTES], config)
        late = _is_late(header[BASE_TIMESTAMP], header[MAX_TIMESTAMP], now_ms, config)
        sized = codec_id != NONE and narrows_record_size(config)
        if not recompressed and not config.compacted and not late and not sized:
            return buffer[start:end]
        with view[start + HEADER_SIZE : end] as stored, budget.decompress(codec_id, stored) as body:
            if sized:
                _check_record_sizes(body, header[RECORDS_COUNT], config.max_decompressed_message_bytes)
            if late:
                refuse_timestamps(body, 0, len(body), header, now_ms, config, partition)
            check_records(body, 0, len(body), header, now_ms, config, partition)
            if recompressed:
                batch = _with_codec(header, body, config)
                if len(batch) > config.max_message_bytes:
                    # Checked here already: bytes stored until the append must not be more than the client sent.
                    raise KafkaError(
                        ErrorCode.MESSAGE_TOO_LARGE,
                        f"a batch of {len(batch)} bytes after recompression is larger than max.message.bytes, "
                        f"{config.max_message_bytes}",
                    )
                return batch
    return buffer[start:end]


def _check_record_sizes(body: memoryview, count: int, max_bytes: int) -> None:
    """Raises InvalidRecord for a record of more than `max_bytes` behind its length field, as Apache Kafka 4.4 does."""
    if len(body) <= max_bytes:
        return
    size = oversized_record(body, 0, len(body), count, max_bytes)
    if size:
        raise InvalidRecord(
            f"a record of {size} bytes decompressed is larger than max.decompressed.message.bytes, {max_bytes}"
        )


def needs_recompression(attributes: int, config: LogConfig) -> bool:
    """Return whether the topic's `compression.type` differs from the codec of the batch."""
    wanted = config.compression_type
    return wanted != PRODUCER_CODEC and CODEC_IDS[_codec_name(wanted)] != attributes & COMPRESSION_MASK


def _codec_name(compression_type: str) -> str:
    return "none" if compression_type == "uncompressed" else compression_type


def _with_codec(header: BatchHeader, body: memoryview, config: LogConfig) -> bytearray:
    """Return a batch of the decompressed `body` with the topic's codec; all other fields stay.

    The bytes of records are the same under every codec: no record objects are created.
    """
    codec_id = CODEC_IDS[_codec_name(config.compression_type)]
    payload = compress(codec_id, body, _level(codec_id, config))
    fields = list(header)
    fields[BATCH_LENGTH] = HEADER_SIZE - LOG_OVERHEAD + len(payload)
    fields[ATTRIBUTES] = header[ATTRIBUTES] & ~COMPRESSION_MASK | codec_id
    batch = bytearray(BATCH_HEADER.pack(*fields))
    batch += payload
    with memoryview(batch) as view:
        _CRC.pack_into(batch, CRC_POSITION, crc32c(view[ATTRIBUTES_POSITION:]))
    return batch


def _level(codec_id: int, config: LogConfig) -> int | None:
    """Return the level that the topic sets; None for the codec's default."""
    if codec_id == GZIP:
        return None if config.compression_gzip_level == -1 else config.compression_gzip_level
    return {LZ4: config.compression_lz4_level, ZSTD: config.compression_zstd_level}.get(codec_id)
