"""What a topic's configuration demands of a client's batch beyond what every batch must be (`record.validate`).

Runs once a batch, on the append path: keep it flat. The record walk covers uncompressed batches; of compressed ones
only keys of compacted topics are looked at, by decompressing, and timestamps where the header has passed over the
largest: `needs_decompression` tells a caller beforehand, and `prepare_batch` does it off the loop.

Left out: sequences of producers (`producer_state`), and what Apache Kafka checks inside compressed batches beyond keys.
"""

from __future__ import annotations

import struct

from ottla.common.disk import Buffer
from ottla.common.errors import ErrorCode, KafkaError
from ottla.record.batch import (
    ATTRIBUTES_POSITION,
    BASE_TIMESTAMP_POSITION,
    BATCH_HEADER,
    COMPRESSION_MASK,
    CRC_POSITION,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    BatchView,
)
from ottla.record.checksum import crc32c
from ottla.record.compression import CODEC_IDS, DEFAULT_MAX_BYTES, GZIP, LZ4, ZSTD, compress, decompress
from ottla.record.errors import InvalidRecord
from ottla.record.validate import check_batch
from ottla.record.walk import first_null_key, walk_records
from ottla.storage.log_config import LogConfig

PRODUCER_CODEC = "producer"
CRC = struct.Struct(">I")
_TIMESTAMPS = struct.Struct(">qq")
_ATTRIBUTES_LOW_BYTE = ATTRIBUTES_POSITION + 1

MAX_BYTES_PER_REQUEST = 2 * DEFAULT_MAX_BYTES
"""What the batches of one request may decompress to together. The first may always use its whole bound."""


class DecompressionBudget:
    """Bounds the work that one request can make by decompression, however many batches it carries."""

    __slots__ = ("left",)

    def __init__(self, max_bytes: int = MAX_BYTES_PER_REQUEST) -> None:
        self.left = max_bytes

    def decompress(self, codec_id: int, stored: Buffer) -> memoryview:
        """The bytes behind `stored`. Data that is refused costs all it might have become.

        Raises KafkaError as `compression.decompress`, and REQUEST_TIMED_OUT when the budget is what is too small: the
        client tries again with the batches that are left.
        """
        limit = min(self.left, DEFAULT_MAX_BYTES)
        if limit > 0:
            try:
                body = decompress(codec_id, stored, limit)
            except KafkaError as error:
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


def check_timestamps(base_timestamp: int, max_timestamp: int, now_ms: int, config: LogConfig) -> None:
    """CreateTime bounds of the batch as its header states them; raises KafkaError INVALID_TIMESTAMP."""
    if max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {max_timestamp} is more than {config.message_timestamp_after_max_ms} ms after the broker's "
            f"{now_ms} (message.timestamp.after.max.ms)",
        )
    if base_timestamp != NO_TIMESTAMP and now_ms - base_timestamp > config.message_timestamp_before_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {base_timestamp} is more than {config.message_timestamp_before_max_ms} ms before the broker's "
            f"{now_ms} (message.timestamp.before.max.ms)",
        )


def check_records(buffer: bytearray, start: int, end: int, header: BatchHeader, config: LogConfig) -> None:
    """Walk the records of an uncompressed batch, and find keys where the topic is compacted.

    Raises KafkaError INVALID_RECORD, and CORRUPT_MESSAGE or MESSAGE_TOO_LARGE from decompression.
    """
    if header[5] & COMPRESSION_MASK == 0:
        walk_records(buffer, start + HEADER_SIZE, end, header[12])
        if config.compacted:
            _require_keys(first_null_key(buffer, start + HEADER_SIZE, end, header[12]))
    elif config.compacted:
        with memoryview(buffer) as view, view[start:end] as batch:
            body = BatchView(batch).body()
            _require_keys(first_null_key(body, 0, len(body), header[12]))


def _require_keys(keyless: int) -> None:
    if keyless >= 0:
        raise InvalidRecord(f"record {keyless}: a compacted topic needs keys", keyless)


def lacks_max_timestamp(buffer: bytearray, start: int) -> bool:
    """Whether the batch at `start` is compressed and its header has passed over the largest timestamp of its records,
    so that `check_batch` would decompress it."""
    if not buffer[start + _ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK:
        return False
    base_timestamp, max_timestamp = _TIMESTAMPS.unpack_from(buffer, start + BASE_TIMESTAMP_POSITION)
    lacks: bool = max_timestamp < base_timestamp
    return lacks


def needs_decompression(buffer: bytearray, start: int, config: LogConfig) -> bool:
    """Whether appending the batch at `start` decompresses or compresses, which costs the loop time."""
    codec = buffer[start + _ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK
    return (codec != 0 and config.compacted) or needs_recompression(codec, config) or lacks_max_timestamp(buffer, start)


def prepare_batch(buffer: bytearray, start: int, end: int, config: LogConfig, budget: DecompressionBudget) -> bytearray:
    """What of an append costs time in proportion to decompressed bytes, for a pool thread: touches its arguments only.

    Returns the batch as it is to be appended, with `prepared=True`. Raises KafkaError as `Log.append_as_leader` and
    `DecompressionBudget.decompress`.
    """
    if end - start > config.max_message_bytes:
        return buffer[start:end]
    with memoryview(buffer) as view:
        header = check_batch(buffer, view, start, end, budget.decompress)
        if header[1] + LOG_OVERHEAD != end - start:
            return buffer[start:end]
        codec_id = header[5] & COMPRESSION_MASK
        recompressed = needs_recompression(header[5], config)
        if not recompressed and not config.compacted:
            return buffer[start:end]
        with view[start + HEADER_SIZE : end] as stored, budget.decompress(codec_id, stored) as body:
            if recompressed or codec_id == 0:
                walk_records(body, 0, len(body), header[12])
            if config.compacted:
                _require_keys(first_null_key(body, 0, len(body), header[12]))
            if recompressed:
                batch = _with_codec(header, body, config)
                if len(batch) > config.max_message_bytes:
                    # Told here already, since what is kept until the append must not be more than what was sent.
                    raise KafkaError(
                        ErrorCode.MESSAGE_TOO_LARGE,
                        f"a batch of {len(batch)} bytes after recompression is larger than max.message.bytes, "
                        f"{config.max_message_bytes}",
                    )
                return batch
    return buffer[start:end]


def needs_recompression(attributes: int, config: LogConfig) -> bool:
    """Whether the topic's `compression.type` is not what the batch has."""
    wanted = config.compression_type
    return wanted != PRODUCER_CODEC and CODEC_IDS[_codec_name(wanted)] != attributes & COMPRESSION_MASK


def _codec_name(compression_type: str) -> str:
    return "none" if compression_type == "uncompressed" else compression_type


def recompress(buffer: bytearray, start: int, end: int, config: LogConfig) -> bytearray:
    """The client's batch with the topic's codec; everything else of it stays. Raises KafkaError.

    The records are bytes that mean the same under every codec: they are walked, and no object is made for one.
    """
    source = BatchView(bytes(memoryview(buffer)[start:end]))
    body = source.body()
    walk_records(body, 0, len(body), source.records_count)
    return _with_codec(source.header, body, config)


def _with_codec(header: BatchHeader, body: memoryview, config: LogConfig) -> bytearray:
    """A batch of the decompressed `body` with the topic's codec."""
    codec_id = CODEC_IDS[_codec_name(config.compression_type)]
    payload = compress(codec_id, body, _level(codec_id, config))
    fields = list(header)
    fields[1] = HEADER_SIZE - LOG_OVERHEAD + len(payload)
    fields[5] = header[5] & ~COMPRESSION_MASK | codec_id
    batch = bytearray(BATCH_HEADER.pack(*fields))
    batch += payload
    with memoryview(batch) as view:
        CRC.pack_into(batch, CRC_POSITION, crc32c(view[ATTRIBUTES_POSITION:]))
    return batch


def _level(codec_id: int, config: LogConfig) -> int | None:
    """The level that the topic asks for; None is the codec's default."""
    if codec_id == GZIP:
        return None if config.compression_gzip_level == -1 else config.compression_gzip_level
    return {LZ4: config.compression_lz4_level, ZSTD: config.compression_zstd_level}.get(codec_id)
