"""A client of brokers 0.8 and 0.9, with all bytes of requests and message sets encoded here by `struct`.

It shares no code with the broker, so that the two can't have the same defect. Kafka's versions of that time: Metadata
0, Produce 0 to 2, Fetch 0 and 2, ListOffsets 0, OffsetCommit and OffsetFetch 0 and 1, ConsumerMetadata 0 (today's
FindCoordinator). Message format 0 is used by Produce and Fetch 0, format 1 by version 2 of both.
"""

from __future__ import annotations

import gzip
import socket
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import cramjam

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, CONSUMER_METADATA = 0, 1, 2, 3, 8, 9, 10
NONE, GZIP, SNAPPY = 0, 1, 2
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY}
TIMEOUT_S = 120.0
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_BLOCK_BYTES = 32 * 1024


class Row(NamedTuple):
    """A record to send; format 0 drops the time."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 1_700_000_000_000


class Found(NamedTuple):
    """A record as it was fetched; the time is None in format 0."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None


def string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text.encode())) + text.encode()


def data(content: bytes | None) -> bytes:
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content


def array(elements: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(elements)) + b"".join(elements)


def message(magic: int, attributes: int, offset: int, row: Row) -> bytes:
    """A message with the offset and size that stand before it in a set."""
    timestamp = struct.pack(">q", row.timestamp_ms) if magic else b""
    content = struct.pack(">bb", magic, attributes) + timestamp + data(row.key) + data(row.value)
    return struct.pack(">qiI", offset, len(content) + 4, zlib.crc32(content)) + content


def message_set(rows: Sequence[Row], magic: int, codec: int = NONE) -> bytes:
    """The message set of an old producer: messages, or one message that wraps them, compressed."""
    plain = b"".join(message(magic, NONE, number, row) for number, row in enumerate(rows))
    return plain if codec == NONE else wrapper(plain, len(rows) - 1, magic, codec)


def wrapper(inner: bytes, last_offset: int, magic: int, codec: int) -> bytes:
    return message(magic, codec, last_offset, Row(None, compressed(codec, inner)))


def compressed(codec: int, content: bytes) -> bytes:
    """Snappy in the frame that Java's clients gave it: a header, and blocks with their sizes."""
    if codec == GZIP:
        return gzip.compress(content)
    blocks = [content[at : at + XERIAL_BLOCK_BYTES] for at in range(0, len(content), XERIAL_BLOCK_BYTES)]
    return (
        XERIAL_MAGIC + struct.pack(">ii", 1, 1) + b"".join(data(bytes(cramjam.snappy.compress_raw(b))) for b in blocks)
    )


def decompressed(codec: int, content: bytes) -> bytes:
    if codec == GZIP:
        return gzip.decompress(content)
    assert codec == SNAPPY
    assert content.startswith(XERIAL_MAGIC), "a consumer of then reads snappy in its frame only"
    position = len(XERIAL_MAGIC) + 8
    out = b""
    while position < len(content):
        (size,) = struct.unpack_from(">i", content, position)
        out += bytes(cramjam.snappy.decompress_raw(content[position + 4 : position + 4 + size]))
        position += 4 + size
    return out


def entries(content: bytes) -> Iterator[tuple[int, int, int, Row]]:
    """(magic, attributes, offset, row) of each whole message; the last may be cut short."""
    position = 0
    while len(content) - position >= 12:
        offset, size = struct.unpack_from(">qi", content, position)
        if size > len(content) - position - 12:
            return
        (crc,) = struct.unpack_from(">I", content, position + 12)
        body = content[position + 16 : position + 12 + size]
        assert zlib.crc32(body) == crc
        answer = Answer(body)
        magic, attributes = answer.take(">bb")
        (timestamp,) = answer.take(">q") if magic else (-1,)
        yield magic, attributes, offset, Row(answer.data(), answer.data(), timestamp)
        assert answer.rest == b""
        position += 12 + size


def records(content: bytes, magic: int) -> Iterator[Found]:
    """The records of a set that was fetched, all of it in format `magic`, with the offsets that its consumers gave."""
    for found_magic, attributes, offset, row in entries(content):
        assert found_magic == magic
        codec = attributes & 7
        if codec == NONE:
            yield Found(offset, row.key, row.value, row.timestamp_ms if magic else None)
            continue
        assert row.key is None
        inner = list(entries(decompressed(codec, row.value or b"")))
        # Within format 1 offsets count from the first; the wrapper has that of the last.
        shift = offset - inner[-1][2] if magic else 0
        assert inner[-1][2] + shift == offset
        for inner_magic, inner_attributes, inner_offset, each in inner:
            assert (inner_magic, inner_attributes & 7) == (magic, NONE)
            yield Found(inner_offset + shift, each.key, each.value, each.timestamp_ms if magic else None)


class Answer:
    """The bytes of a response, read in their order."""

    def __init__(self, content: bytes) -> None:
        self.rest = content

    def take(self, layout: str) -> tuple[Any, ...]:
        size = struct.calcsize(layout)
        found = struct.unpack(layout, self.rest[:size])
        self.rest = self.rest[size:]
        return found

    def string(self) -> str | None:
        (size,) = self.take(">h")
        return None if size < 0 else self._cut(size).decode()

    def data(self) -> bytes | None:
        (size,) = self.take(">i")
        return None if size < 0 else self._cut(size)

    def count(self) -> range:
        (count,) = self.take(">i")
        return range(count)

    def _cut(self, size: int) -> bytes:
        assert size <= len(self.rest)
        found, self.rest = self.rest[:size], self.rest[size:]
        return found


class RawClient:
    """One connection. Topics are asked one at a time, partitions together."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._correlation_id = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def send(self, key: int, version: int, body: bytes) -> None:
        self._correlation_id += 1
        frame = struct.pack(">hhi", key, version, self._correlation_id) + string("by hand") + body
        self._socket.sendall(data(frame))

    def receive(self) -> Answer:
        (size,) = struct.unpack(">i", self._read(4))
        answer = Answer(self._read(size))
        assert answer.take(">i") == (self._correlation_id,)
        return answer

    def ask(self, key: int, version: int, body: bytes) -> Answer:
        self.send(key, version, body)
        return self.receive()

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self._socket.recv(min(1 << 20, size - len(found)))
            assert more, "the broker closed the connection"
            found += more
        return found

    def metadata(self, *topics: str) -> tuple[dict[int, tuple[str, int]], dict[str, tuple[int, dict[int, int]]]]:
        """(host, port) by node, and by topic its error and the leader of each partition; no name means all topics."""
        answer = self.ask(METADATA, 0, array([string(topic) for topic in topics]))
        brokers = {}
        for _ in answer.count():
            (node,) = answer.take(">i")
            host = answer.string() or ""
            (port,) = answer.take(">i")
            brokers[node] = host, port
        found = {}
        for _ in answer.count():
            (error,) = answer.take(">h")
            name = answer.string() or ""
            leaders = {}
            for _ in answer.count():
                partition_error, partition, leader = answer.take(">hii")
                assert partition_error == 0
                replicas, in_sync = ([answer.take(">i")[0] for _ in answer.count()] for _ in range(2))
                assert leader in in_sync
                assert set(in_sync) <= set(replicas)
                leaders[partition] = leader
            found[name] = error, leaders
        assert answer.rest == b""
        return brokers, found

    def produce(self, version: int, topic: str, sets: dict[int, bytes], acks: int = -1) -> dict[int, tuple[int, int]]:
        """(error, base offset) of each partition; nothing with acks=0, which is not answered."""
        partitions = [struct.pack(">i", partition) + data(content) for partition, content in sets.items()]
        body = struct.pack(">hi", acks, 5000) + array([string(topic) + array(partitions)])
        self.send(PRODUCE, version, body)
        if not acks:
            return {}
        answer = self.receive()
        found = {}
        assert answer.take(">i") == (1,)
        assert answer.string() == topic
        for _ in answer.count():
            partition, error, base_offset = answer.take(">ihq")
            if version >= 2:
                assert answer.take(">q") == (-1,), "the time is the producer's"
            found[partition] = error, base_offset
        if version >= 1:
            answer.take(">i")
        assert answer.rest == b""
        return found

    def fetch(
        self, version: int, topic: str, offsets: dict[int, int], max_bytes: int = 1 << 20
    ) -> dict[int, tuple[int, int, bytes]]:
        """(error, high watermark, message set) of each partition."""
        partitions = [struct.pack(">iqi", partition, offset, max_bytes) for partition, offset in offsets.items()]
        body = struct.pack(">iii", -1, 200, 1) + array([string(topic) + array(partitions)])
        answer = self.ask(FETCH, version, body)
        if version >= 1:
            answer.take(">i")
        found = {}
        assert answer.take(">i") == (1,)
        assert answer.string() == topic
        for _ in answer.count():
            partition, error, high_watermark = answer.take(">ihq")
            found[partition] = error, high_watermark, answer.data() or b""
        assert answer.rest == b""
        return found

    def read(self, magic: int, topic: str, partition: int, start: int = 0) -> list[Found]:
        """All records from `start` to the high watermark, in format `magic`."""
        found: list[Found] = []
        position = start
        while True:
            error, high_watermark, content = self.fetch(2 * magic, topic, {partition: position})[partition]
            assert error == 0
            fresh = [record for record in records(content, magic) if record.offset >= position]
            assert fresh, f"nothing comes at offset {position} of {high_watermark}"
            found += fresh
            position = fresh[-1].offset + 1
            if position == high_watermark:
                return found

    def list_offsets(self, topic: str, partition: int, timestamp: int, count: int) -> list[int]:
        body = struct.pack(">i", -1) + array(
            [string(topic) + array([struct.pack(">iqi", partition, timestamp, count)])]
        )
        answer = self.ask(LIST_OFFSETS, 0, body)
        assert answer.take(">i") == (1,)
        assert answer.string() == topic
        assert answer.take(">iih") == (1, partition, 0)
        found = [answer.take(">q")[0] for _ in answer.count()]
        assert answer.rest == b""
        return found

    def coordinator(self, group: str) -> tuple[int, int, str, int]:
        """(error, node, host, port)."""
        answer = self.ask(CONSUMER_METADATA, 0, string(group))
        error, node = answer.take(">hi")
        host = answer.string() or ""
        (port,) = answer.take(">i")
        assert answer.rest == b""
        return error, node, host, port

    def commit(self, version: int, group: str, topic: str, offsets: dict[int, tuple[int, str]]) -> dict[int, int]:
        """The error of each partition; version 1 is that of a client with manually assigned partitions."""
        member = struct.pack(">i", -1) + string("") if version else b""
        timestamp = struct.pack(">q", -1) if version else b""
        partitions = [
            struct.pack(">iq", partition, offset) + timestamp + string(note)
            for partition, (offset, note) in offsets.items()
        ]
        answer = self.ask(OFFSET_COMMIT, version, string(group) + member + array([string(topic) + array(partitions)]))
        assert answer.take(">i") == (1,)
        assert answer.string() == topic
        found: dict[int, int] = dict(answer.take(">ih") for _ in answer.count())
        assert answer.rest == b""
        return found

    def committed(
        self, version: int, group: str, topic: str, partitions: Sequence[int]
    ) -> dict[int, tuple[int, str | None, int]]:
        """(offset, metadata, error) of each partition."""
        asked = string(topic) + array([struct.pack(">i", partition) for partition in partitions])
        answer = self.ask(OFFSET_FETCH, version, string(group) + array([asked]))
        assert answer.take(">i") == (1,)
        assert answer.string() == topic
        found = {}
        for _ in answer.count():
            partition, offset = answer.take(">iq")
            note = answer.string()
            (error,) = answer.take(">h")
            found[partition] = offset, note, error
        assert answer.rest == b""
        return found
