"""Hostile bytes: for any input, the readers return or raise ProtocolError, quickly and without large allocations."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from typing import Any

import pytest
from tests.request_header import parse_request_header
from tests.scale import size

from ottla.common.errors import ProtocolError
from ottla.protocol.codec import MAX_REQUEST_ELEMENTS, read_in_place, read_message, write_message
from ottla.protocol.fetch import parse_fetch
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.produce import parse_produce
from ottla.protocol.registry import API, ApiKey
from ottla.record.varint import write_unsigned_varint

LARGE = 0x7FFFFFFF
COMPACT_LARGE = b"\xff\xff\xff\xff\x0f"


def readers():
    """Every request reader that the network reaches, and every response reader of the client."""
    for spec in API.values():
        for version in range(spec.min_version, spec.max_version + 1):
            for cls in (spec.request, spec.response):
                yield (
                    f"{cls.__name__}-{version}",
                    lambda data, cls=cls, version=version: read_message(cls, version, data, 0, len(data)),
                )
                yield (
                    f"{cls.__name__}-{version}",
                    lambda data, cls=cls, version=version: read_in_place(
                        cls, version, memoryview(data), MAX_REQUEST_ELEMENTS
                    ),
                )
    for version in range(3, 14):
        yield f"parse_produce-{version}", lambda data, v=version: parse_produce(v, bytearray(data), 0, len(data))
    for version in range(4, 19):
        yield f"parse_fetch-{version}", lambda data, v=version: parse_fetch(v, bytearray(data), 0, len(data))
    yield "header", lambda data: parse_request_header(bytearray(data), 0, len(data))


def survives(read, data: bytes) -> None:
    try:
        read(data)
    except ProtocolError:
        return


@pytest.fixture(scope="module")
def seeds() -> dict[str, list[bytes]]:
    """Valid bodies to mutate: the default message of each class and version, with one element in every array."""
    from ottla.protocol.schema import ArrayType, Primitive, schema_of

    def sample(cls, version):
        values: dict[str, Any] = {}
        for field in schema_of(cls).fields:
            if version in field.versions and isinstance(field.type, ArrayType):
                item = field.type.item
                values[field.name] = [sample(item, version) if not isinstance(item, Primitive) else item.default]
            elif version in field.versions and isinstance(field.type, Primitive) and field.type.name == "string":
                values[field.name] = "name"
            elif version in field.versions and isinstance(field.type, Primitive) and field.type.name == "records":
                values[field.name] = b"records"
        return cls(**values)

    found: dict[str, list[bytes]] = {}
    for spec in API.values():
        for version in range(spec.min_version, spec.max_version + 1):
            for cls in (spec.request, spec.response):
                out = bytearray()
                write_message(sample(cls, version), version, out)
                found.setdefault(f"{cls.__name__}-{version}", []).append(bytes(out))
                if spec.key in (ApiKey.PRODUCE, ApiKey.FETCH) and cls is spec.request:
                    found[f"parse_{spec.name.lower()}-{version}"] = [bytes(out)]
    found["header"] = [struct.pack(">hhih", 3, 9, 1, 2) + b"me\1\5\1x"]
    return found


def mutated(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        action = rng.randrange(5)
        position = rng.randrange(len(out) + 1)
        if action == 0 and out:
            out[position % len(out)] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)))
        elif action == 1:
            del out[position:]
        elif action == 2:
            out[position:position] = rng.choice((COMPACT_LARGE, struct.pack(">i", LARGE), b"\x7f\xff", b"\xff" * 11))
        elif action == 3:
            out[position : position + 4] = struct.pack(">i", rng.choice((-2, -1, LARGE, len(out), 1 << 16)))
        else:
            out[position:position] = rng.randbytes(rng.randrange(1, 9))
    return bytes(out)


def test_random_and_mutated_bytes(seeds):
    """Short form of the fuzzer; every reader gets the same share. Peak memory stays small."""
    rng = random.Random(20260101)
    every = list(readers())
    tracemalloc.start()
    try:
        for name, read in every:
            survives(read, b"")
            for _ in range(10):
                survives(read, rng.randbytes(rng.randrange(1, 60)))
            for seed in seeds[name]:
                read(seed)
                for _ in range(size(6, 60)):
                    survives(read, mutated(rng, seed))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40_000_000


def test_every_prefix_of_a_request_is_refused(seeds):
    """No reader accepts a truncated message, and none reads into the next frame."""
    for spec in API.values():
        for version in range(spec.min_version, spec.max_version + 1):
            (data,) = seeds[f"{spec.request.__name__}-{version}"]
            buffer = bytearray(data + b"\x01" * 64)
            for end in range(len(data)):
                with pytest.raises(ProtocolError):
                    read_message(spec.request, version, buffer, 0, end)
                if spec.key is ApiKey.PRODUCE:
                    with pytest.raises(ProtocolError):
                        parse_produce(version, buffer, 0, end)
                elif spec.key is ApiKey.FETCH:
                    with pytest.raises(ProtocolError):
                        parse_fetch(version, buffer, 0, end)


def bounded(read, *, peak_bytes: int, seconds: float = 2.0) -> None:
    """`read` is rejected within `seconds` of CPU and, in a second traced run, within `peak_bytes`."""
    begin = time.process_time()
    with pytest.raises(ProtocolError):
        read()
    spent = time.process_time() - begin
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            read()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < peak_bytes
    assert spent < seconds


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">i", LARGE),
        struct.pack(">ih", LARGE, 0),
        struct.pack(">ih", 1, 0x7FFF),
        struct.pack(">i", 1 << 20) + bytes(1000),
    ],
)
def test_classic_counts_and_lengths_beyond_the_bytes(body):
    """CVE-2026-111108: a count is compared with the remaining bytes before a list is allocated."""
    bounded(lambda: read_message(MetadataRequest, 1, body, 0, len(body)), peak_bytes=100_000)
    fetch = bytearray(struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, -1) + body)
    bounded(lambda: parse_fetch(7, fetch, 0, len(fetch)), peak_bytes=100_000)
    produce = bytearray(struct.pack(">hhi", -1, 1, 0) + body)
    bounded(lambda: parse_produce(3, produce, 0, len(produce)), peak_bytes=100_000)


@pytest.mark.parametrize("body", [COMPACT_LARGE, b"\2" + COMPACT_LARGE, b"\xff\xff\xff\xff\x7f", b"\xff" * 12])
def test_compact_counts_and_lengths_beyond_the_bytes(body):
    bounded(lambda: read_message(MetadataRequest, 9, body, 0, len(body)), peak_bytes=100_000)
    fetch = bytearray(struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, -1) + body)
    bounded(lambda: parse_fetch(12, fetch, 0, len(fetch)), peak_bytes=100_000)
    produce = bytearray(struct.pack(">bhi", 0, 1, 0) + body)
    bounded(lambda: parse_produce(9, produce, 0, len(produce)), peak_bytes=100_000)


def compact(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def test_elements_are_bounded_even_when_the_bytes_are_there():
    """A frame full of tiny elements would become hundreds of times its size in objects."""
    count = MAX_REQUEST_ELEMENTS + 1
    tiny = compact(count + 1) + b"\1\0" * count + b"\1\0\0\0"
    bounded(lambda: read_message(MetadataRequest, 9, tiny, 0, len(tiny)), peak_bytes=3_000_000)
    partitions = compact(count + 1) + b"\0\0\0\0\1\0" * count
    produce = bytearray(b"\0" + struct.pack(">hi", 1, 0) + b"\2\2t" + partitions + b"\0\0")
    bounded(lambda: parse_produce(9, produce, 0, len(produce)), peak_bytes=100_000)
    head = struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, -1)
    fetch = bytearray(head + b"\2\2t" + compact(count + 1) + bytes(33 * count) + b"\0\1\0")
    bounded(lambda: parse_fetch(12, fetch, 0, len(fetch)), peak_bytes=100_000)


def test_tagged_field_floods():
    """CVE-2026-111115: in the header, in a body, and spread over the elements of an array."""
    count = size(100_000, 1_000_000)
    flood = b"\x63\0" * count
    header = bytearray(struct.pack(">hhih", 3, 9, 1, -1) + compact(count) + flood)
    bounded(lambda: parse_request_header(header, 0, len(header)), peak_bytes=100_000)
    body = b"\1\0\0\0" + compact(count) + flood
    bounded(lambda: read_message(MetadataRequest, 9, body, 0, len(body)), peak_bytes=4_000_000)
    element = b"\1" + compact(1000) + b"\x63\0" * 1000
    spread = compact(count // 1000 + 1) + element * (count // 1000)
    bounded(lambda: read_message(MetadataRequest, 9, spread, 0, len(spread)), peak_bytes=4_000_000)
    produce = bytearray(b"\0" + struct.pack(">hi", 1, 0) + b"\1" + compact(count) + flood)
    bounded(lambda: parse_produce(9, produce, 0, len(produce)), peak_bytes=100_000)
    head = struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, -1)
    fetch = bytearray(head + b"\2\2t\2" + bytes(32) + compact(count) + flood)
    bounded(lambda: parse_fetch(12, fetch, 0, len(fetch)), peak_bytes=100_000)


def test_tagged_field_limit_equals_apache_kafkas():
    for count in (10_000, 10_001):
        body = b"\1\0\0\0" + compact(count) + b"\x63\0" * count
        if count == 10_000:
            read_message(MetadataRequest, 9, body, 0, len(body))
        else:
            with pytest.raises(ProtocolError, match="tagged fields"):
                read_message(MetadataRequest, 9, body, 0, len(body))


def test_strings_with_invalid_utf8_are_rejected():
    for version, body in ((1, b"\0\0\0\1\0\2\xff\xfe"), (9, b"\2\3\xff\xfe\0\0\0\0\0")):
        with pytest.raises(ProtocolError):
            read_message(MetadataRequest, version, body, 0, len(body))


def test_nulls_where_the_version_has_none():
    classic = b"\0\0\0\1\xff\xff"
    with pytest.raises(ProtocolError, match="name is null"):
        read_message(MetadataRequest, 1, classic, 0, len(classic))
    with pytest.raises(ProtocolError, match="topics is null"):
        read_message(MetadataRequest, 0, b"\xff\xff\xff\xff", 0, 4)
    nameless = b"\2" + bytes(16) + b"\0\0\0\0\0"
    request, _ = read_message(MetadataRequest, 12, nameless, 0, len(nameless))
    assert request.topics == [MetadataRequestTopic(name=None)]


def test_compact_string_length_is_limited() -> None:
    """Code that hashes names in a loop relies on it: the id of a group or transaction."""
    for length, refused in ((0x7FFF, False), (0x8000, True), (1 << 20, True)):
        size = bytearray()
        write_unsigned_varint(size, length + 1)
        name = bytes(size) + b"x" * length
        metadata = b"\x02" + bytes(16) + name + bytes(4)
        produce = name + struct.pack(">hiB", -1, 1000, 1) + b"\0"
        for read, data in (
            (lambda data: read_message(MetadataRequest, 12, data, 0, len(data)), metadata),
            (lambda data: parse_produce(9, bytearray(data), 0, len(data)), produce),
        ):
            if refused:
                with pytest.raises(ProtocolError):
                    read(data)
            else:
                read(data)
