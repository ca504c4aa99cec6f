"""Hostile requests: valid ones of every API and version, then changed in ways that have hurt brokers.

`Generator(seed).requests()` always yields the same requests for the same seed: (description, request without its size
prefix). Nothing here depends on responses of a broker, so a failure replays from the seed alone.

A message is filled at random from its schema, with values that reach deep into handlers: existing topics, existing and
missing partitions, batches that are valid, of all codecs, damaged, or damaged with a correct CRC.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from crc32c import crc32c
from tests.request_header import parse_request_header

from ottla.common.errors import ProtocolError
from ottla.protocol.codec import read_message, write_message
from ottla.protocol.registry import API, ApiKey, ApiSpec
from ottla.protocol.schema import ArrayType, Field, Primitive, schema_of
from ottla.record.batch import ATTRIBUTES_POSITION, CRC_POSITION, HEADER_SIZE
from ottla.record.builder import RecordData, build_batch
from ottla.record.varint import write_unsigned_varint

INPUTS = int(os.environ.get("OTTLA_FUZZ_INPUTS", "60000"))
"""All inputs of one run; each test takes its share. OTTLA_FUZZ_INPUTS=200000 is for longer ones."""
SEED = int(os.environ.get("OTTLA_FUZZ_SEED", "0")) or (
    1 if os.environ.get("CI") else random.SystemRandom().randrange(1, 1 << 32)
)
"""A new one each run, but in CI; named when a test fails, and setting the variable replays it."""

TOPIC = "fuzz"
TOPIC_ID = bytes.fromhex("a5f00ba5f00ba5f00ba5f00ba5f00ba5")
"""Stands for the id that the broker gave to `TOPIC`; `with_topic_id` puts that in its place."""
TOPIC_PARTITIONS = 3
COMPACTED_TOPIC = "fuzz-compacted"

MANY_PARTITIONS = 50
MAX_PARTITIONS = 10_000
"""Maximum number of objects that one request may create; more is refused, as in Apache Kafka."""

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
HUGE_VARINT = b"\xff\xff\xff\xff\x0f"
ENDLESS_VARINT = b"\xff" * 12
INTERESTING = {
    "int8": (-128, -2, -1, 0, 1, 2, 3, 127),
    "int16": (-(1 << 15), -2, -1, 0, 1, 2, 1000, (1 << 15) - 1),
    "uint16": (0, 1, 9092, (1 << 16) - 1),
    "int32": (-INT32_MAX - 1, -2, -1, 0, 1, 2, 3, 500, 1 << 20, INT32_MAX),
    "uint32": (0, 1, (1 << 32) - 1),
    "int64": (-INT64_MAX - 1, -5, -4, -3, -2, -1, 0, 1, 2, 1000, 1 << 40, INT64_MAX),
}
NAMES = (
    TOPIC,
    TOPIC,
    TOPIC,
    COMPACTED_TOPIC,
    "no-such-topic",
    "",
    ".",
    "a" * 249,
    "a" * 250,
    "b" * 4000,
    "../../etc/passwd",
    "with\0zero",
    "ümläut",
    "__cluster_metadata",
    "__consumer_offsets",
    "retention.ms",
    "max.message.bytes",
    "segment.bytes",
    "cleanup.policy",
    "compact",
    "metadata.version",
    "1",
    "-1",
    "9" * 40,
)
Request = tuple[str, bytes]


def unsigned(value: int) -> bytes:
    """`value` as an unsigned varint."""
    out = bytearray()
    write_unsigned_varint(out, value)
    return bytes(out)


def header(api_key: int, version: int, correlation_id: int = 1, client_id: bytes | None = b"fuzz") -> bytes:
    """A request header, with an empty tag section where the version has one."""
    out = struct.pack(">hhih", api_key, version, correlation_id, -1 if client_id is None else len(client_id))
    flexible = api_key in API and version >= API[api_key].flexible_from
    return out + (client_id or b"") + (b"\0" if flexible else b"")


def with_crc(batch: bytearray) -> bytearray:
    """Correct the CRC, so that damage is found after that check."""
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(bytes(batch[ATTRIBUTES_POSITION:])))
    return batch


def makes_many_partitions(request: bytes) -> bool:
    """Whether a valid request creates so many partitions that it is slow rather than hostile; harnesses skip it."""
    try:
        parsed = parse_request_header(request, 0, len(request))
        spec = API[parsed.api_key]
        if spec.key not in (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS) or not spec.supports(parsed.api_version):
            return False
        message: Any
        message, _ = read_message(spec.request, parsed.api_version, request, parsed.body_start, len(request))
    except ProtocolError:
        return False
    counts = [topic.num_partitions if spec.key == ApiKey.CREATE_TOPICS else topic.count for topic in message.topics]
    return not message.validate_only and any(MANY_PARTITIONS < count <= MAX_PARTITIONS for count in counts)


def with_topic_id(frame: bytes, topic_id: bytes) -> bytes:
    """The request with the real id of `TOPIC`."""
    return frame.replace(TOPIC_ID, topic_id)


class Generator:
    """A stream of hostile requests; `label` separates streams of one seed."""

    def __init__(self, seed: int, label: str) -> None:
        self._rng = random.Random(f"{seed}-{label}")
        self._batches = self._make_batches()
        self._specs = list(API.values())
        self._pool: dict[tuple[int, int], list[bytes]] = {}
        self._kinds: tuple[tuple[int, Callable[[], Request]], ...] = (
            (52, self._mutated),
            (16, self._valid),
            (12, self._produce),
            (6, self._garbage_body),
            (4, self._hostile_header),
            (4, self._tag_flood),
            (3, self._count_attack),
            (3, self._garbage),
        )

    def requests(self) -> Iterator[Request]:
        """Endless."""
        weights = [weight for weight, _ in self._kinds]
        makers = [make for _, make in self._kinds]
        while True:
            for make in self._rng.choices(makers, weights, k=256):
                yield make()

    # Kinds of requests.

    def _valid(self) -> Request:
        spec, version, body = self._sample()
        return f"valid {spec.name} v{version}", header(spec.key, version, self._rng.getrandbits(31)) + body

    def _mutated(self) -> Request:
        spec, version, body = self._sample()
        frame = bytearray(header(spec.key, version) + body)
        # The header has kinds of its own; a change there ends the way of most requests at the door.
        first = len(frame) - len(body) if self._rng.random() < 0.9 else 4
        for _ in range(self._rng.choice((1, 1, 1, 2, 3, 6))):
            self._mutate(frame, first=first)
        return f"mutated {spec.name} v{version}", bytes(frame)

    def _produce(self) -> Request:
        """A produce request to existing partitions, so that the batch is validated."""
        rng = self._rng
        spec = API[ApiKey.PRODUCE]
        version = rng.randint(spec.min_version, spec.max_version)
        batch = bytearray(rng.choice(self._batches))
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            self._mutate(batch, first=0)
        if rng.random() < 0.7 and len(batch) >= HEADER_SIZE:
            if rng.random() < 0.8:
                struct.pack_into(">i", batch, 8, len(batch) - 12)
            with_crc(batch)
        body = self._produce_body(version, bytes(batch))
        return f"produce v{version} of a damaged batch", header(ApiKey.PRODUCE, version) + body

    def _garbage_body(self) -> Request:
        rng = self._rng
        spec = rng.choice(self._specs)
        version = rng.randint(spec.min_version, spec.max_version)
        size = rng.choice((0, 1, 5, 30, 200))
        body = bytes(rng.choices(b"\0\1\2\3\x7f\x80\xff", k=size)) if rng.random() < 0.5 else rng.randbytes(size)
        return f"garbage for {spec.name} v{version}", header(spec.key, version) + body

    def _hostile_header(self) -> Request:
        rng = self._rng
        spec, version, body = self._sample()
        choice = rng.randrange(5)
        if choice == 0:
            return "unknown API", header(rng.choice((-1, 4, 36, 68, 71, 84, 999, 32767, -32768)), 0) + body
        if choice == 1:
            version = rng.choice((-32768, -1, spec.max_version + 1, 99, 32767))
            return f"{spec.name} in a version that is not served", header(spec.key, version) + body
        if choice == 2:
            size = rng.choice((-2, -32768, 32767, 5000, len(body) + 100))
            return "lying client id", struct.pack(">hhih", spec.key, version, 1, size) + body
        if choice == 3:
            client_id = rng.randbytes(rng.choice((0, 10, 3000)))
            return "client id of random bytes", header(spec.key, version, -1, client_id) + body
        whole = header(spec.key, version)
        return "cut header", whole[: rng.randrange(len(whole))]

    def _tag_flood(self) -> Request:
        """Tagged fields in the header and around, between and within body fields (CVE-2026-111115)."""
        rng = self._rng
        spec, version, body = self._sample()
        count = rng.choice((1, 15, 16, 17, 500, 3000))
        claimed = rng.choice((count, count, INT32_MAX, (1 << 32) - 1))
        fields = b"".join(unsigned(rng.randrange(1, 200)) + b"\0" for _ in range(count))
        section = unsigned(claimed) + fields
        if version >= spec.flexible_from and rng.random() < 0.5:
            return f"tag flood in the header of {spec.name} v{version}", header(spec.key, version)[:-1] + section + body
        cut = rng.choice((0, len(body), max(0, len(body) - 1), rng.randrange(len(body) + 1)))
        return f"tag flood in {spec.name} v{version}", header(spec.key, version) + body[:cut] + section + body[cut:]

    def _count_attack(self) -> Request:
        """A count or length that promises far more than arrives, at a random place (CVE-2026-111108)."""
        rng = self._rng
        spec, version, body = self._sample()
        position = rng.randrange(len(body) + 1)
        lie = rng.choice((HUGE_VARINT, ENDLESS_VARINT, struct.pack(">i", INT32_MAX), struct.pack(">i", 1 << 24)))
        damaged = body[:position] + lie + body[position + rng.choice((0, len(lie))) :]
        return f"count attack on {spec.name} v{version}", header(spec.key, version) + damaged

    def _garbage(self) -> Request:
        return "garbage", self._rng.randbytes(self._rng.choice((0, 1, 3, 4, 8, 40, 300)))

    # Changes.

    def _mutate(self, data: bytearray, first: int) -> None:
        rng = self._rng
        if len(data) <= first:
            data += rng.randbytes(3)
            return
        position = rng.randrange(first, len(data))
        action = rng.randrange(10)
        if action < 3:
            data[position] ^= 1 << rng.randrange(8)
        elif action == 3:
            data[position] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))
        elif action == 4:
            del data[position:]
        elif action == 5:
            value = rng.choice((-INT32_MAX - 1, -2, -1, 0, 1, len(data), 1 << 16, 1 << 24, INT32_MAX))
            data[position : position + 4] = struct.pack(">i", value)
        elif action == 6:
            data[position : position + 2] = struct.pack(">h", rng.choice((-2, -1, 0, 1, len(data) & 0x7FFF, 32767)))
        elif action == 7:
            data[position:position] = rng.choice((HUGE_VARINT, ENDLESS_VARINT, b"\x80\x80\x00", rng.randbytes(4)))
        elif action == 8:
            del data[position : position + rng.randrange(1, 9)]
        else:
            piece = data[position : position + rng.randrange(1, 40)]
            data[position:position] = piece * rng.randrange(1, 5)

    # Valid material.

    def _sample(self) -> tuple[ApiSpec, int, bytes]:
        rng = self._rng
        spec = rng.choice(self._specs)
        version = rng.randint(spec.min_version, spec.max_version)
        pool = self._pool.setdefault((spec.key, version), [])
        if len(pool) < 24:
            body = bytearray()
            write_message(self._fill(spec.request, version, 3), version, body)
            pool.append(bytes(body))
            return spec, version, pool[-1]
        return spec, version, rng.choice(pool)

    def _fill(self, cls: type, version: int, depth: int) -> Any:
        values = {
            field.name: self._value(field, version, depth)
            for field in schema_of(cls).fields
            if version in field.versions and self._rng.random() < 0.9
        }
        return cls(**values)

    def _value(self, field: Field, version: int, depth: int) -> Any:
        rng = self._rng
        if version in field.nullable and rng.random() < 0.2:
            return None
        if isinstance(field.type, ArrayType):
            item = field.type.item
            count = rng.choice((0, 1, 1, 1, 2, 5)) if depth else 0
            if isinstance(item, Primitive):
                return [self._primitive(item, field.name) for _ in range(count)]
            return [self._fill(item, version, depth - 1) for _ in range(count)]
        if isinstance(field.type, Primitive):
            return self._primitive(field.type, field.name)
        return self._fill(field.type, version, depth - 1)

    def _primitive(self, kind: Primitive, name: str) -> Any:
        rng = self._rng
        if kind.name in INTERESTING:
            if name in ("partition", "index", "partition_index") and rng.random() < 0.7:
                return rng.randrange(TOPIC_PARTITIONS)
            if name in ("acks", "replica_id", "session_id", "timeout_ms", "max_wait_ms") and rng.random() < 0.6:
                return rng.choice((-1, 0, 1)) if name == "acks" else -1 if name == "replica_id" else 0
            return rng.choice(INTERESTING[kind.name])
        if kind.name == "bool":
            return rng.random() < 0.5
        if kind.name == "string":
            return rng.choice(NAMES)
        if kind.name == "uuid":
            return rng.choice((TOPIC_ID, TOPIC_ID, TOPIC_ID, bytes(16), rng.randbytes(16)))
        if kind.name == "float64":
            return rng.choice((0.0, -1.5, float("inf"), float("nan")))
        return bytes(rng.choice(self._batches)) if rng.random() < 0.8 else rng.randbytes(rng.randrange(80))

    def _produce_body(self, version: int, records: bytes) -> bytes:
        rng = self._rng
        spec = API[ApiKey.PRODUCE]
        topic_class = spec_item(spec.request, "topic_data")
        partition_class = spec_item(topic_class, "partition_data")
        partition_data = partition_class(index=rng.randrange(TOPIC_PARTITIONS), records=records)
        named = {"topic_id": TOPIC_ID} if version >= 13 else {"name": rng.choice((TOPIC, COMPACTED_TOPIC))}
        message = spec.request(
            acks=rng.choice((-1, 0, 1)),
            timeout_ms=rng.choice((0, 100)),
            topic_data=[topic_class(partition_data=[partition_data], **named)],
        )
        out = bytearray()
        write_message(message, version, out)
        return bytes(out)

    def _make_batches(self) -> list[bytearray]:
        rng = self._rng
        make = partial(RecordData, 1_700_000_000_000)
        headers = (("h", b"x"), ("n", None))
        some = [make(b"k%d" % n, rng.randbytes(n % 40), headers if n % 3 == 0 else ()) for n in range(20)]
        batches = [
            build_batch([make(b"key", b"value")]),
            build_batch([make(None, b"value")]),
            build_batch([make(b"key", None)]),
            build_batch(some),
            build_batch(some, producer_id=1, producer_epoch=0, base_sequence=0),
            build_batch(some, producer_id=7, producer_epoch=3, base_sequence=INT32_MAX - 3),
            build_batch(some, is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
            build_batch([make(b"\0\0\0\0", b"")], is_control=True),
            build_batch([RecordData(-1, None, b"no timestamp")]),
            build_batch([RecordData(INT64_MAX // 2, b"far", b"future")]),
        ]
        batches += [build_batch(some, compression=codec) for codec in ("gzip", "snappy", "lz4", "zstd")]
        batches.append(batches[0] + batches[1])
        return batches


def spec_item(cls: type, field_name: str) -> type:
    """The struct that an array field of a message holds."""
    for field in schema_of(cls).fields:
        if field.name == field_name and isinstance(field.type, ArrayType) and isinstance(field.type.item, type):
            return field.type.item
    raise LookupError(f"{cls.__name__} has no array of structs named {field_name}")
