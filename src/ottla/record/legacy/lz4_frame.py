"""Header checksum of LZ4 frames, which is wrong in message format v0.

The first LZ4 clients computed the checksum of the frame descriptor over the frame's magic number too (KIP-57). Readers
of v0 therefore ignore it; frames for them are written with the same error. Format v1 fixed it.
Source: LZ4 frame format 1.6.1, xxHash specification 0.1.1.
"""

from __future__ import annotations

from ottla.common.platform.disk import Buffer

_MAGIC = b"\x04\x22\x4d\x18"
_FLAGS_POSITION = 4
_CONTENT_SIZE_FLAG = 0x08
_DICTIONARY_FLAG = 0x01
_SMALLEST_HEADER = 7
"""Magic, flags, block descriptor, checksum."""

_MASK = 0xFFFFFFFF
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_LARGEST_HASHED = 15


def with_right_checksum(frame: Buffer) -> bytes | memoryview:
    """Return `frame` with the correct header checksum of its format; other data unchanged."""
    return _with_checksum(frame, _FLAGS_POSITION)


def with_wrong_checksum(frame: Buffer) -> bytes | memoryview:
    """Return `frame` with the header checksum of message format v0."""
    return _with_checksum(frame, 0)


def _with_checksum(frame: Buffer, hashed_from: int) -> bytes | memoryview:
    view = memoryview(frame)
    if len(view) < _SMALLEST_HEADER or view[:_FLAGS_POSITION] != _MAGIC:
        return view
    flags = view[_FLAGS_POSITION]
    at = _SMALLEST_HEADER - 1 + 8 * bool(flags & _CONTENT_SIZE_FLAG) + 4 * bool(flags & _DICTIONARY_FLAG)
    if at >= len(view) or at > _LARGEST_HASHED:  # or with a dictionary, which Kafka's clients do not use
        return view
    corrected = bytearray(view)
    corrected[at] = _xxh32_short(view[hashed_from:at]) >> 8 & 0xFF
    return bytes(corrected)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


def _xxh32_short(data: memoryview) -> int:
    """Return XXH32 with seed 0 of less than 16 bytes, which needs no accumulators."""
    value = (_PRIME_5 + len(data)) & _MASK
    words = len(data) // 4 * 4
    for start in range(0, words, 4):
        word = int.from_bytes(data[start : start + 4], "little")
        value = _rotated((value + word * _PRIME_3) & _MASK, 17) * _PRIME_4 & _MASK
    for byte in data[words:]:
        value = _rotated((value + byte * _PRIME_5) & _MASK, 11) * _PRIME_1 & _MASK
    value = (value ^ value >> 15) * _PRIME_2 & _MASK
    value = (value ^ value >> 13) * _PRIME_3 & _MASK
    return value ^ value >> 16
