"""Variable-length integers as Kafka writes them: unsigned (lengths, tags) and zigzag (record fields).

Little-endian groups of 7 bits. An encoding longer than its type needs at most, or with bits beyond the type, is
refused; Java drops such bits silently, and no client writes them. Shared with `ottla.protocol`, therefore errors are
`ProtocolError`. The walk over records has its own inlined readers (`_batch_py`, `_batch.pyx`).
"""

from __future__ import annotations

from ottla.common.disk import Buffer
from ottla.common.errors import ProtocolError

_UINT32_MAX = 0xFFFFFFFF
_UINT64_MAX = 0xFFFFFFFFFFFFFFFF


def _read(buffer: Buffer, position: int, end: int, limit: int) -> tuple[int, int]:
    value = 0
    shift = 0
    while position < end:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if value > limit:
            break
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            break
    raise ProtocolError("a varint runs past the end or out of its range")


def read_unsigned_varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """(value in [0, 2^32), position after it); raises ProtocolError when it does not end before `end`."""
    if position < end:
        byte = buffer[position]
        if byte < 0x80:
            return byte, position + 1
    return _read(buffer, position, end if end - position <= 5 else position + 5, _UINT32_MAX)


def read_unsigned_varlong(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """(value in [0, 2^64), position after it); raises ProtocolError when it does not end before `end`."""
    return _read(buffer, position, end, _UINT64_MAX)


def read_varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """(signed 32-bit value, position after it); raises ProtocolError when it does not end before `end`."""
    raw, position = read_unsigned_varint(buffer, position, end)
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """(signed 64-bit value, position after it); raises ProtocolError when it does not end before `end`."""
    raw, position = _read(buffer, position, end, _UINT64_MAX)
    return (raw >> 1) ^ -(raw & 1), position


def write_unsigned_varint(out: bytearray, value: int) -> None:
    """Append `value` (not negative; the caller keeps it within the type of the field)."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed value in zigzag; serves varint and varlong, whose encodings agree."""
    write_unsigned_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def size_of_unsigned_varint(value: int) -> int:
    """Bytes that `write_unsigned_varint` appends."""
    return (value.bit_length() + 6) // 7 or 1


def size_of_varint(value: int) -> int:
    """Bytes that `write_varint` appends."""
    return size_of_unsigned_varint(value << 1 if value >= 0 else (-value << 1) - 1)
