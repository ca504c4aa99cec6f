"""Hand-written Produce codec: parses a request into buffer positions, packs a response into bytes.

Records are neither copied nor read. The declared classes of `messages.produce` are the reference: a parity test runs
both over the same bytes. Invariant of the parser: every returned position is in `[start, end]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from ottla.common.errors import ProtocolError
from ottla.protocol.codec import MAX_REQUEST_ELEMENTS
from ottla.protocol.framing import SIZE_BYTES
from ottla.protocol.hot import TOPIC_ID_FROM, OneProduced, pack_one_produced
from ottla.protocol.primitives import (
    NodeEndpoint,
    Topic,
    append_node_endpoints,
    append_nullable_string,
    append_topic,
)
from ottla.protocol.tags import skip_tags
from ottla.protocol.writer import MAX_STRING_BYTES
from ottla.record.varint import read_unsigned_varint, write_unsigned_varint

FLEXIBLE_FROM = 9
BATCHES_FROM = 3
"""First version with record batches; earlier ones contain message sets of formats v0 and v1."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_ACKS_TIMEOUT_FEW = Struct(">hiB")
_ACKS_TIMEOUT_COUNT = Struct(">hii")
_INDEX_SIZE = Struct(">ii")
_HEADER = Struct(">ii")
_PARTITION_0 = Struct(">ihq")
_PARTITION_3 = Struct(">ihqq")
_PARTITION_5 = Struct(">ihqqq")
_PARTITION_8 = Struct(">ihqqqih")
_LEADER_TAG = Struct(">BBBiiB")
_NO_ERRORS_NO_MESSAGE = (0, -1)


class ParsedProduceRequest:
    """A produce request; each partition is (index, position of its records, position after them).

    Null records are an empty range. `partition_count` covers all topics, rejected ones included.
    """

    __slots__ = ("acks", "partition_count", "refused", "timeout_ms", "topics", "transactional_id")

    def __init__(
        self,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        topics: list[tuple[Topic, list[tuple[int, int, int]]]],
        partition_count: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics
        self.partition_count = partition_count
        self.refused: Sequence[tuple[Topic, list[tuple[int, int, int]]]] = ()
        """Topics that are answered but not written, because the client is not authorized."""


class RecordError(NamedTuple):
    """Error of one batch or record of a partition (KIP-467)."""

    batch_index: int
    message: str | None


class ProducePartitionResult(NamedTuple):
    """Result of one partition in a produce response. `current_leader` is (leader id, leader epoch)."""

    partition_index: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None


def request_of_one(one: OneProduced) -> ParsedProduceRequest:
    """Return the same as `parse_produce` for a request that `hot.parse_one_produce` has parsed."""
    acks, timeout_ms, topic, index, start, stop = one
    return ParsedProduceRequest(None, acks, timeout_ms, [(topic, [(index, start, stop)])], 1)


def parse_produce(
    version: int, buffer: bytearray, start: int, end: int, max_elements: int = MAX_REQUEST_ELEMENTS
) -> ParsedProduceRequest:
    """Parse the request body in `buffer[start:end]`, versions 0 to 13; raises ProtocolError for malformed bytes."""
    try:
        if version >= FLEXIBLE_FROM:
            return _parse_flexible(version, buffer, start, end, max_elements)
        return _parse_classic(version, buffer, start, end, max_elements)
    except UnicodeDecodeError:
        raise ProtocolError(f"Produce v{version} contains a string that is not UTF-8") from None
    except (IndexError, StructError):
        raise ProtocolError(f"Produce v{version} ends too early") from None


def _exceeds(field: str) -> ProtocolError:
    return ProtocolError(f"{field} of a Produce request exceeds the remaining bytes or the maximum length")


def _parse_classic(version: int, buffer: bytearray, start: int, end: int, max_elements: int) -> ParsedProduceRequest:
    int16, int32, index_size = _INT16.unpack_from, _INT32.unpack_from, _INDEX_SIZE.unpack_from
    position = start
    transactional_id = None
    if version >= BATCHES_FROM:
        (size,) = int16(buffer, start)
        position = start + 2
        if size >= 0:
            if size > end - position:
                raise _exceeds("the transactional id")
            transactional_id = buffer[position : position + size].decode()
            position += size
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(buffer, position)
    position += 10
    if topic_count < 0 or topic_count * 6 > end - position:
        raise _exceeds("the topic count")
    budget = max_elements - topic_count
    if budget < 0:
        raise ProtocolError("a Produce request has more topics than allowed")
    topics: list[tuple[Topic, list[tuple[int, int, int]]]] = []
    for _ in range(topic_count):
        (size,) = int16(buffer, position)
        position += 2
        if size < 0 or size > end - position:
            raise _exceeds("a topic name")
        name = buffer[position : position + size].decode()
        position += size
        (count,) = int32(buffer, position)
        position += 4
        if count < 0 or count * 8 > end - position:
            raise _exceeds("the partition count")
        budget -= count
        if budget < 0:
            raise ProtocolError("a Produce request has more partitions than allowed")
        partitions = []
        for _ in range(count):
            index, size = index_size(buffer, position)
            position += 8
            stop = position + size if size >= 0 else position
            if stop > end or position > end:
                raise _exceeds("the records")
            partitions.append((index, position, stop))
            position = stop
        topics.append((name, partitions))
    if position > end:
        raise _exceeds("the body")
    return ParsedProduceRequest(transactional_id, acks, timeout_ms, topics, max_elements - topic_count - budget)


def _parse_flexible(version: int, buffer: bytearray, start: int, end: int, max_elements: int) -> ParsedProduceRequest:
    """Parse any flexible request. One-byte lengths are read inline: a call costs more than the rest of such a field.

    Reads beyond `end` are harmless, since the position after them is checked before the value is used.
    """
    int32, uvarint = _INT32.unpack_from, read_unsigned_varint
    size, position = buffer[start], start + 1
    transactional_id = None
    if size:
        size, position = uvarint(buffer, start, end)
        if size - 1 > min(end - position, MAX_STRING_BYTES):
            raise _exceeds("the transactional id")
        transactional_id = buffer[position : position + size - 1].decode()
        position += size - 1
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_FEW.unpack_from(buffer, position)
    position += 7
    if topic_count > 0x7F:
        topic_count, position = uvarint(buffer, position - 1, end)
    topic_count -= 1
    if topic_count < 0 or topic_count * 3 > end - position:
        raise _exceeds("the topic count")
    budget = max_elements - topic_count
    if budget < 0:
        raise ProtocolError("a Produce request has more topics than allowed")
    topics: list[tuple[Topic, list[tuple[int, int, int]]]] = []
    for _ in range(topic_count):
        topic, position = _read_topic(version, buffer, position, end)
        count = buffer[position]
        position += 1
        if count > 0x7F:
            count, position = uvarint(buffer, position - 1, end)
        count -= 1
        if count < 0 or count * 6 > end - position:
            raise _exceeds("the partition count")
        budget -= count
        if budget < 0:
            raise ProtocolError("a Produce request has more partitions than allowed")
        partitions = []
        for _ in range(count):
            (index,) = int32(buffer, position)
            size, position = uvarint(buffer, position + 4, end)
            stop = position + size - 1 if size else position
            if stop > end:
                raise _exceeds("the records")
            partitions.append((index, position, stop))
            position = stop + 1 if stop < end and not buffer[stop] else skip_tags(buffer, stop, end)
        position = position + 1 if position < end and not buffer[position] else skip_tags(buffer, position, end)
        topics.append((topic, partitions))
    skip_tags(buffer, position, end)
    return ParsedProduceRequest(transactional_id, acks, timeout_ms, topics, max_elements - topic_count - budget)


def _read_topic(version: int, buffer: bytearray, position: int, end: int) -> tuple[Topic, int]:
    if version >= TOPIC_ID_FROM:
        stop = position + 16
        if stop > end:
            raise _exceeds("a topic id")
        return bytes(buffer[position:stop]), stop
    size, position = read_unsigned_varint(buffer, position, end)
    stop = position + size - 1
    if not size or stop > end:
        raise _exceeds("a topic name")
    return buffer[position:stop].decode(), stop


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[Topic, Sequence[ProducePartitionResult]]],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Return a whole response frame, size prefix included.

    Fields that a version lacks are left out: throttle time below 1, time of append below 2, log start offset below 5,
    error messages below 8, the current leader and `node_endpoints` below 10 (KIP-951).
    """
    out = bytearray(_HEADER.pack(0, correlation_id))
    if version >= FLEXIBLE_FROM:
        out.append(0)
        write_unsigned_varint(out, len(topics) + 1)
        for topic, partitions in topics:
            append_topic(out, True, topic)
            write_unsigned_varint(out, len(partitions) + 1)
            for result in partitions:
                _append_flexible(out, version, result)
            out.append(0)
        out += _INT32.pack(throttle_ms)
        append_node_endpoints(out, node_endpoints if version >= 10 else ())
    else:
        out += _INT32.pack(len(topics))
        for topic, partitions in topics:
            append_topic(out, False, topic)
            out += _INT32.pack(len(partitions))
            for result in partitions:
                _append_classic(out, version, result)
        if version:
            out += _INT32.pack(throttle_ms)
    _INT32.pack_into(out, 0, len(out) - SIZE_BYTES)
    return bytes(out)


def encode_single_produce_response(
    version: int,
    correlation_id: int,
    topic: Topic,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    throttle_ms: int = 0,
) -> bytes:
    """Return the response frame for the usual case: one partition, no error."""
    if version >= FLEXIBLE_FROM:
        return pack_one_produced(
            correlation_id, topic, index, base_offset, log_append_time_ms, log_start_offset, throttle_ms
        )
    out = bytearray(_HEADER.pack(0, correlation_id))
    out += b"\0\0\0\x01"
    append_topic(out, False, topic)
    out += b"\0\0\0\x01"
    if version >= 8:
        out += _PARTITION_8.pack(index, 0, base_offset, log_append_time_ms, log_start_offset, *_NO_ERRORS_NO_MESSAGE)
    elif version >= 5:
        out += _PARTITION_5.pack(index, 0, base_offset, log_append_time_ms, log_start_offset)
    elif version >= 2:
        out += _PARTITION_3.pack(index, 0, base_offset, log_append_time_ms)
    else:
        out += _PARTITION_0.pack(index, 0, base_offset)
    if version:
        out += _INT32.pack(throttle_ms)
    _INT32.pack_into(out, 0, len(out) - SIZE_BYTES)
    return bytes(out)


def _append_classic(out: bytearray, version: int, result: ProducePartitionResult) -> None:
    if version < 5:
        out += _PARTITION_3.pack(*result[:4]) if version >= 2 else _PARTITION_0.pack(*result[:3])
        return
    out += _PARTITION_5.pack(*result[:5])
    if version >= 8:
        out += _INT32.pack(len(result.record_errors))
        for batch_index, message in result.record_errors:
            out += _INT32.pack(batch_index)
            append_nullable_string(out, False, message)
        append_nullable_string(out, False, result.error_message)


def _append_flexible(out: bytearray, version: int, result: ProducePartitionResult) -> None:
    out += _PARTITION_5.pack(*result[:5])
    write_unsigned_varint(out, len(result.record_errors) + 1)
    for batch_index, message in result.record_errors:
        out += _INT32.pack(batch_index)
        append_nullable_string(out, True, message)
        out.append(0)
    append_nullable_string(out, True, result.error_message)
    if result.current_leader is None or version < 10:
        out.append(0)
    else:
        out += _LEADER_TAG.pack(1, 0, 9, *result.current_leader, 0)
