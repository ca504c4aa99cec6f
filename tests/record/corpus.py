"""Hostile corpus for both twins of the walk, and for the compiled one under AddressSanitizer (`asan.py`).

`cases()` returns (name, body, count): bytes that a producer could send behind a valid header and CRC.
`mutations(rng, ...)` generates more of them from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from ottla.record.batch import HEADER_SIZE
from ottla.record.builder import RecordData, build_batch
from ottla.record.varint import write_unsigned_varint, write_varint

INT32_MAX = (1 << 31) - 1
INT32_MIN = -(1 << 31)
INT64_MAX = (1 << 63) - 1

Case = tuple[str, bytes, int]


def varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def unsigned(value: int) -> bytes:
    out = bytearray()
    write_unsigned_varint(out, value)
    return bytes(out)


def framed(body: bytes) -> bytes:
    """Return a record of that body with the correct length."""
    return varint(len(body)) + body


def record(
    *,
    timestamp_delta: bytes = b"\x00",
    offset_delta: bytes = b"\x00",
    key: bytes = b"\x01",
    value: bytes = b"\x01",
    headers: bytes = b"\x00",
) -> bytes:
    """Return a record of encoded fields; the defaults are valid (null key and value, no headers)."""
    return framed(b"\x00" + timestamp_delta + offset_delta + key + value + headers)


def body_of(records: list[RecordData]) -> bytes:
    return bytes(build_batch(records)[HEADER_SIZE:])


def valid_cases() -> Iterator[Case]:
    yield "no records", b"", 0
    yield "smallest record", record(), 1
    yield "largest varlong", record(timestamp_delta=b"\xff" * 9 + b"\x01"), 1
    yield "largest offset delta", record(offset_delta=varint(INT32_MAX)), 1
    yield "gap in the offsets", record() + record(offset_delta=varint(7)), 2
    yield "empty header key and value", record(headers=varint(1) + b"\x00\x00"), 1
    yield "header key that is not UTF-8", record(headers=varint(1) + varint(3) + b"\xff\xc3x" + b"\x01"), 1
    yield "overlong zero", record(timestamp_delta=b"\x80\x80\x00"), 1
    many = [RecordData(5 * i, b"k" * (i % 9), b"v" * (i % 200), (("h", b"x" * i),) * (i % 3)) for i in range(300)]
    yield "many records", body_of(many), 300


def invalid_cases() -> Iterator[Case]:
    huge = (varint(INT32_MAX), varint(INT32_MIN), varint(-2), varint(INT32_MAX - 1), varint(1 << 30), varint(8))
    too_long = (b"\x80" * 5, b"\xff" * 5, b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x10", b"\x80" * 200)
    for number, field in enumerate((*huge, *too_long)):
        padding = b"\x00" * 6
        yield f"record length {number}", field + padding, 1
        yield f"key length {number}", record(key=field), 1
        yield f"value length {number}", record(value=field), 1
        yield f"header count {number}", record(headers=field), 1
        yield f"header key length {number}", record(headers=varint(1) + field + b"\x01"), 1
        yield f"header value length {number}", record(headers=varint(1) + varint(0) + field), 1
    for number, field in enumerate(too_long):
        yield f"offset delta {number}", record(offset_delta=field), 1
    for number, field in enumerate((b"\x80" * 10, b"\xff" * 10, b"\x80" * 9 + b"\x02", b"\x80" * 300)):
        yield f"timestamp delta {number}", record(timestamp_delta=field), 1
    yield "record of length 0", b"\x00" * 14, 2
    yield "negative offset delta", record(offset_delta=varint(-1)), 1
    yield "repeated offset delta", record() + record(), 2
    yield "falling offset delta", record(offset_delta=varint(3)) + record(offset_delta=varint(2)), 2
    yield "null header key", record(headers=varint(1) + b"\x01\x01"), 1
    yield "header count beyond the end", record(headers=varint(4) + b"\x00" * 7), 1
    yield "header count one short", record(headers=varint(1) + b"\x00" * 4), 1
    yield "bytes after the last header", record(headers=b"\x00\x00"), 1
    yield "bytes after the last record", record() + b"\x00", 1
    yield "fewer records than counted", record() + b"\x00" * 7, 2
    yield "count of a flood", record(), INT32_MAX
    yield "negative count", record(), -1
    yield "count without bytes", b"", 1
    yield "records without count", record(), 0
    whole = record(key=varint(2) + b"ab", value=varint(3) + b"abc", headers=varint(1) + varint(1) + b"h\x01")
    for cut in range(1, len(whole)):
        yield f"cut at {cut}", whole[:cut] + b"\xff" * max(0, 7 - cut), 1


def cases() -> Iterator[Case]:
    yield from valid_cases()
    yield from invalid_cases()


def mutations(rng: random.Random, count: int) -> Iterator[Case]:
    """Iterate over valid bodies with a few bytes changed, removed or inserted, and sometimes a wrong count."""
    seeds = [(body, records) for _, body, records in valid_cases() if len(body) < 400]
    seeds += [
        (
            body_of(
                [RecordData(i * i, rng.randbytes(3), rng.randbytes(i), (("k", b"v"), ("n", None))) for i in range(n)]
            ),
            n,
        )
        for n in (1, 2, 5, 12)
    ]
    interesting = bytes((0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF))
    for number in range(count):
        original, records = rng.choice(seeds)
        body = bytearray(original)
        for _ in range(rng.randrange(1, 5)):
            kind = rng.randrange(4)
            place = rng.randrange(len(body) + 1)
            if kind == 0 and place < len(body):
                body[place] = rng.choice(interesting)
            elif kind == 1 and place < len(body):
                body[place] ^= 1 << rng.randrange(8)
            elif kind == 2:
                del body[place : place + rng.randrange(1, 6)]
            else:
                body[place:place] = bytes(rng.choices(interesting, k=rng.randrange(1, 6)))
        if rng.randrange(8) == 0:
            records += rng.choice((-1, 1, 1000))
        yield f"mutation {number}", bytes(body), records
