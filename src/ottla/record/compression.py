"""Codecs of record batches, with decompression bounded before anything is allocated.

Numbers as in the batch attributes: none 0, gzip 1, snappy 2, lz4 3, zstd 4. All forms that clients send are read:
several gzip members, concatenated zstd or lz4 frames, snappy as one raw block (librdkafka) or in xerial's chunks
(Java). The written forms are readable by Java: lz4 blocks are independent, snappy is xerial's.

Invariant: a call allocates at most `max_bytes` for its result, plus the codec's own window (at most 128 MiB of address
space for zstd, touched only as far as output is produced). Output buffers grow on demand from a multiple of the input.
Invalid data raises CORRUPT_MESSAGE, output beyond the limit MESSAGE_TOO_LARGE.

The wrong header checksum of lz4 in message format v0 is handled in `legacy.lz4_frame`.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.disk import Buffer

if TYPE_CHECKING:
    from ottla.common.platform.reused_memory import ReusedMemory

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

_FIRST_OUTPUT_SIZE = 64 * 1024
_OUTPUT_PER_INPUT = 4
_GROWTH = 4
_LARGEST_ZEROED = 1024 * 1024
"""Larger outputs are mapped: `bytearray` fills them with zeros first, without releasing the GIL."""
_NO_ROOM = "failed to write whole buffer"  # error message of cramjam for a full output buffer

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_CHUNK_SIZE = 32 * 1024
_INT32 = struct.Struct(">i")
_SNAPPY_MAX_RATIO = 22  # a copy element of 3 bytes expands to 64

MAX_RATIO = (1, 1032, _SNAPPY_MAX_RATIO, 255, 32768)
"""Maximum expansion of one byte by each codec, indexed by the codec's number.

By the formats: deflate expands 2 bits to 258 bytes, lz4 a length byte to 255, zstd 4 bytes to a block of 128 KiB.
"""

_GZIP_LEVEL = 6
_LZ4_LEVEL = 9
_LZ4_FAST = 1
"""Kafka's default level: its writer uses lz4's fast compressor for it, and the thorough one for other levels."""
_ZSTD_LEVEL = 3


def _corrupt(codec_id: int, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{CODEC_NAMES[codec_id]} data is corrupt: {reason}")


def _too_large(codec_id: int, max_bytes: int) -> KafkaError:
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
    import cramjam  # imported here, as below: the package takes 2 MB, and many brokers never compress

    if codec_id == GZIP:
        return bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL if level is None else level))
    if codec_id == SNAPPY:
        return _compress_xerial(data)
    if codec_id == LZ4:
        effort = _LZ4_FAST if level is None or level == _LZ4_LEVEL else level
        compressor = cramjam.lz4.Compressor(level=effort, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))
        return bytes(compressor.finish())
    if codec_id == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec_id} is unknown")


def decompress(
    codec_id: int, data: Buffer, max_bytes: int = DEFAULT_MAX_BYTES, memory: ReusedMemory | None = None
) -> memoryview:
    """Decompress `data` to at most `max_bytes`; a view of `data` itself for codec 0.

    With `memory`, the result is valid until its next use; only snappy allocates nevertheless.

    Raises KafkaError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE for an unknown codec.
    """
    if codec_id == NONE:
        if len(data) > max_bytes:
            raise _too_large(NONE, max_bytes)
        return memoryview(data)
    import cramjam

    if codec_id == SNAPPY:
        return _decompress_snappy(data, max_bytes)
    if codec_id == GZIP:
        return _decompress_bounded(GZIP, cramjam.gzip.decompress_into, data, max_bytes, memory)
    if codec_id == LZ4:
        return _decompress_bounded(LZ4, cramjam.lz4.decompress_into, data, max_bytes, memory)
    if codec_id == ZSTD:
        return _decompress_bounded(ZSTD, cramjam.zstd.decompress_into, data, max_bytes, memory)
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec_id} is unknown")


def _new_output(size: int) -> bytearray | mmap.mmap:
    if size <= _LARGEST_ZEROED:
        return bytearray(size)
    try:
        return mmap.mmap(-1, size)
    except OSError as error:  # the same as for bytearray; it must not look like a disk error
        raise MemoryError(f"no room for {size} bytes") from error


def _decompress_bounded(
    codec_id: int,
    decompress_into: Callable[[Buffer, bytearray | mmap.mmap | memoryview], int],
    data: Buffer,
    max_bytes: int,
    memory: ReusedMemory | None,
) -> memoryview:
    """Decompress into a buffer that grows up to the limit; restarts cost at worst a third more."""
    import cramjam

    size = min(max_bytes, max(_FIRST_OUTPUT_SIZE, _OUTPUT_PER_INPUT * len(data)))
    while True:
        output = _new_output(size) if memory is None else memory.take(size)[:max_bytes]
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _NO_ROOM not in str(error):
                raise _corrupt(codec_id, str(error)) from None
            if len(output) >= max_bytes:
                raise _too_large(codec_id, max_bytes) from None
            size = min(max_bytes, len(output) * _GROWTH)
            continue
        return memoryview(output)[:written]


def _snappy_length(block: Buffer, max_bytes: int, limit: int) -> int:
    """Return the length stated by a raw block, if plausible; `limit` names the limit in the error."""
    import cramjam

    try:
        length: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise _corrupt(SNAPPY, str(error)) from None
    if length > _SNAPPY_MAX_RATIO * len(block):
        raise _corrupt(SNAPPY, "a block promises more than its bytes can hold")
    if length > max_bytes:
        raise _too_large(SNAPPY, limit)
    return length


def _snappy_block(block: Buffer, left: int, max_bytes: int) -> memoryview:
    """Decompress a raw block to at most `left` bytes; `max_bytes` names the limit in the error."""
    import cramjam

    length = _snappy_length(block, left, max_bytes)
    piece = _new_output(length)
    try:
        written = cramjam.snappy.decompress_raw_into(block, piece)
    except cramjam.DecompressionError as error:
        raise _corrupt(SNAPPY, str(error)) from None
    if written != length:
        raise _corrupt(SNAPPY, "a block ends early")
    return memoryview(piece)


def _decompress_snappy(data: Buffer, max_bytes: int) -> memoryview:
    view = memoryview(data)
    output = bytearray()
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(view, max_bytes, max_bytes)
    end = len(view)
    position = 0
    while position < end:
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:  # streams may be concatenated
            if end - position < _XERIAL_HEADER_SIZE:
                raise _corrupt(SNAPPY, "the xerial header is cut short")
            position += _XERIAL_HEADER_SIZE
            continue
        if end - position < 4:
            raise _corrupt(SNAPPY, "a chunk length is cut short")
        (length,) = _INT32.unpack_from(view, position)
        position += 4
        if length <= 0 or length > end - position:
            raise _corrupt(SNAPPY, "a chunk does not fit the bytes that are left")
        piece = _snappy_block(view[position : position + length], max_bytes - len(output), max_bytes)
        position += length
        if position == end and not output:
            return piece
        output += piece
    return memoryview(output)


def _compress_xerial(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    output = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_CHUNK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_CHUNK_SIZE]))
        output += _INT32.pack(len(block))
        output += block
    return bytes(output)
