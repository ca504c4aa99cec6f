"""Record batches for the differential tests, encoded field by field so that every field can be invalid."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from typing import Any

import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
BASE_TIME = 1_700_000_000_000

CONTROL = 0x20

Record = tuple[bytes | None, bytes | None]


def varint(number: int) -> bytes:
    """Encodes a zigzag varint."""
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value & ~0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(delta: int, key: bytes | None, value: bytes | None, time_delta: int = 0, *, tail: bytes = b"") -> bytes:
    """Encodes one record; `tail` is surplus bytes inside its length."""
    body = b"\0" + varint(time_delta) + varint(delta) + field(key) + field(value) + varint(0) + tail
    return varint(len(body)) + body


def batch(
    records: Sequence[Record] = ((b"k", b"v"),),
    *,
    base_offset: int = 0,
    magic: int = 2,
    attributes: int = 0,
    time: int = BASE_TIME,
    max_time: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    count: int | None = None,
    last_delta: int | None = None,
    length_change: int = 0,
    crc_change: int = 0,
    body: bytes | None = None,
    compress: bool = False,
) -> bytes:
    """Encodes a batch of format 2 with `producer` as id, epoch and sequence; other fields default to valid values."""
    if body is None:
        body = b"".join(record(delta, key, value, delta) for delta, (key, value) in enumerate(records))
    if compress:
        attributes |= 1
        body = gzip.compress(body)
    last = len(records) - 1 if last_delta is None else last_delta
    latest = time + max(0, len(records) - 1) if max_time is None else max_time
    number = len(records) if count is None else count
    covered = struct.pack(">hiqqqhii", attributes, last, time, latest, *producer, number) + body
    crc = (crc32c.crc32c(covered) + crc_change) & 0xFFFFFFFF
    return struct.pack(">qiibI", base_offset, 9 + len(covered) + length_change, -1, magic, crc) + covered


def message_set(value: bytes, magic: int = 1) -> bytes:
    """Encodes a message of format 0 or 1."""
    import zlib

    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", BASE_TIME) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body


def shown(data: bytes) -> Any:
    """Returns the batches of a Fetch response in comparable form.

    Batches with a producer are decoded, without the fields that depend on its id. All others, and a partial batch at
    the end, remain bytes.
    """
    found: list[Any] = []
    position = 0
    while position + HEADER.size <= len(data):
        base, length, _, _, _, attributes, last, first, latest, *producer, count = HEADER.unpack_from(data, position)
        end = position + 12 + length
        if end > len(data):
            break
        if producer[0] < 0:
            found.append({"base_offset": base, "bytes": data[position:end]})
        else:
            number, epoch, sequence = producer
            body = data[position + HEADER.size : end]
            found.append(
                {
                    "base_offset": base,
                    "attributes": attributes,
                    "last_delta": last,
                    "count": count,
                    "producer_id": number,
                    "producer_epoch": epoch,
                    "sequence": sequence,
                    "time": first,
                    **({"marker": body} if attributes & CONTROL else {"body": body, "latest": latest - first}),
                }
            )
        position = end
    if position < len(data):
        found.append({"base_offset": -1, "bytes": data[position:]})
    return found
