"""Compressed formats of record batches, by the package cramjam; loaded for the first compressed batch.

The rules are those of `compression`, which callers use.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable

import cramjam

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.disk import Buffer
from ottla.record.compression import GZIP, LZ4, SNAPPY, SNAPPY_MAX_RATIO, ZSTD, corrupt, too_large

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

_GZIP_LEVEL = 6
_LZ4_LEVEL = 9
_LZ4_FAST = 1
"""Kafka's default level: its writer uses lz4's fast compressor for it, and the thorough one for other levels."""
_ZSTD_LEVEL = 3


def compressed(codec_id: int, data: Buffer, level: int | None) -> bytes:
    """See `compress`."""
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


def decompressed(codec_id: int, data: Buffer, max_bytes: int) -> memoryview:
    """See `decompress`."""
    if codec_id == SNAPPY:
        return _decompress_snappy(data, max_bytes)
    if codec_id == GZIP:
        return _decompress_bounded(GZIP, cramjam.gzip.decompress_into, data, max_bytes)
    if codec_id == LZ4:
        return _decompress_bounded(LZ4, cramjam.lz4.decompress_into, data, max_bytes)
    if codec_id == ZSTD:
        return _decompress_bounded(ZSTD, cramjam.zstd.decompress_into, data, max_bytes)
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec_id} is unknown")


def _new_output(size: int) -> bytearray | mmap.mmap:
    if size <= _LARGEST_ZEROED:
        return bytearray(size)
    try:
        return mmap.mmap(-1, size)
    except OSError as error:  # the same as for bytearray; it must not look like a disk error
        raise MemoryError(f"no room for {size} bytes") from error


def _decompress_bounded(
    codec_id: int, decompress_into: Callable[[Buffer, bytearray | mmap.mmap], int], data: Buffer, max_bytes: int
) -> memoryview:
    """Decompress into a buffer that grows up to the limit; restarts cost at worst a third more."""
    size = min(max_bytes, max(_FIRST_OUTPUT_SIZE, _OUTPUT_PER_INPUT * len(data)))
    while True:
        output = _new_output(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _NO_ROOM not in str(error):
                raise corrupt(codec_id, str(error)) from None
            if size >= max_bytes:
                raise too_large(codec_id, max_bytes) from None
            size = min(max_bytes, size * _GROWTH)
            continue
        return memoryview(output)[:written]


def _snappy_length(block: Buffer, max_bytes: int, limit: int) -> int:
    """Return the length stated by a raw block, if plausible; `limit` names the limit in the error."""
    try:
        length: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise corrupt(SNAPPY, str(error)) from None
    if length > SNAPPY_MAX_RATIO * len(block):
        raise corrupt(SNAPPY, "a block promises more than its bytes can hold")
    if length > max_bytes:
        raise too_large(SNAPPY, limit)
    return length


def _snappy_block(block: Buffer, left: int, max_bytes: int) -> memoryview:
    """Decompress a raw block to at most `left` bytes; `max_bytes` names the limit in the error."""
    length = _snappy_length(block, left, max_bytes)
    piece = _new_output(length)
    try:
        written = cramjam.snappy.decompress_raw_into(block, piece)
    except cramjam.DecompressionError as error:
        raise corrupt(SNAPPY, str(error)) from None
    if written != length:
        raise corrupt(SNAPPY, "a block ends early")
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
                raise corrupt(SNAPPY, "the xerial header is cut short")
            position += _XERIAL_HEADER_SIZE
            continue
        if end - position < 4:
            raise corrupt(SNAPPY, "a chunk length is cut short")
        (length,) = _INT32.unpack_from(view, position)
        position += 4
        if length <= 0 or length > end - position:
            raise corrupt(SNAPPY, "a chunk does not fit the bytes that are left")
        piece = _snappy_block(view[position : position + length], max_bytes - len(output), max_bytes)
        position += length
        if position == end and not output:
            return piece
        output += piece
    return memoryview(output)


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    output = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_CHUNK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_CHUNK_SIZE]))
        output += _INT32.pack(len(block))
        output += block
    return bytes(output)
