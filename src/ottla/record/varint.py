"""Variable-length integers in Kafka's encoding: unsigned (lengths, tags) and zigzag (record fields).

Little-endian groups of 7 bits. An encoding longer than its type needs, or with bits beyond the type, is rejected; Java
drops such bits silently, and no client writes them. Shared with `ottla.protocol`, so errors are `ProtocolError`. The
walk over records has its own inlined readers (`_batch_py`, `_batch.pyx`).
"""

from __future__ import annotations

from ottla.common.errors import ProtocolError
from ottla.common.platform.disk import Buffer

_UINT32_MAX = 0xFFFFFFFF


def read_unsigned_varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Return (value in [0, 2^32), position after it); raises ProtocolError if it does not end before `end`."""
    if position < end:
        byte = buffer[position]
        if byte < 0x80:
            return byte, position + 1
    stop = end if end - position <= 5 else position + 5
    value = 0
    shift = 0
    while position < stop:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if value > _UINT32_MAX:
            break
        if byte < 0x80:
            return value, position
        shift += 7
    raise ProtocolError("a varint runs past the end or out of its range")


def write_unsigned_varint(out: bytearray, value: int) -> None:
    """Append `value`, which is not negative and fits the type of the field."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed value in zigzag encoding; the same for varint and varlong."""
    write_unsigned_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)
