"""Codecs of record batches, with decompression bounded before anything is allocated.

Numbers as in the batch attributes: none 0, gzip 1, snappy 2, lz4 3, zstd 4. All forms that clients send are read:
several gzip members, concatenated zstd or lz4 frames, snappy as one raw block (librdkafka) or in xerial's chunks
(Java). The written forms are readable by Java: lz4 blocks are independent, snappy is xerial's.

Invariant: a call allocates at most `max_bytes` for its result, plus the codec's own window (at most 128 MiB of address
space for zstd, touched only as far as output is produced). Output buffers grow on demand from a multiple of the input.
Invalid data raises CORRUPT_MESSAGE, output beyond the limit MESSAGE_TOO_LARGE.

The codecs are in `codecs`. The wrong header checksum of lz4 in message format v0 is handled in `legacy.lz4_frame`.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.disk import Buffer

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""Kafka's names, indexed by number."""

CODEC_IDS = {name: number for number, name in enumerate(CODEC_NAMES)}

DEFAULT_MAX_BYTES = 128 * 1024 * 1024
"""Default limit of a decompressed batch body."""

SNAPPY_MAX_RATIO = 22  # a copy element of 3 bytes expands to 64

MAX_RATIO = (1, 1032, SNAPPY_MAX_RATIO, 255, 32768)
"""Maximum expansion of one byte by each codec, indexed by the codec's number.

By the formats: deflate expands 2 bits to 258 bytes, lz4 a length byte to 255, zstd 4 bytes to a block of 128 KiB.
"""


def corrupt(codec_id: int, reason: str) -> KafkaError:
    """The error for invalid data."""
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{CODEC_NAMES[codec_id]} data is corrupt: {reason}")


def too_large(codec_id: int, max_bytes: int) -> KafkaError:
    """The error for a result beyond the limit."""
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"{CODEC_NAMES[codec_id]} data decompresses to more than {max_bytes} bytes"
    )


def compress(codec_id: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` in the form that all clients read; `level` as in Kafka's settings, None for the default
    (KIP-390).

    Raises KafkaError UNSUPPORTED_COMPRESSION_TYPE for an unknown codec.
    """
    if codec_id == NONE:
        return bytes(data)
    from ottla.record.codecs import compressed  # imported here, as below: many brokers compress and read nothing

    return compressed(codec_id, data, level)


def decompress(codec_id: int, data: Buffer, max_bytes: int = DEFAULT_MAX_BYTES) -> memoryview:
    """Decompress `data` to at most `max_bytes`; a view of `data` itself for codec 0.

    Raises KafkaError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE for an unknown codec.
    """
    if codec_id == NONE:
        if len(data) > max_bytes:
            raise too_large(NONE, max_bytes)
        return memoryview(data)
    from ottla.record.codecs import decompressed

    return decompressed(codec_id, data, max_bytes)
