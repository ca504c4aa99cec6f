"""Codecs of small requests in Python, the reference of `_hot.pyx`: header, and Produce and Fetch of one partition.

The parsers know only the usual form of a request, and return None for every other and for damaged bytes: the general
parsers (`produce`, `fetch`) decide about those, with their bounds and errors. So a parser here never raises for bytes
of a peer. Nothing is allocated by a length or count from a peer before it was compared with the bytes that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from ottla.common.errors import InvariantError, ProtocolError
from ottla.protocol.primitives import Topic
from ottla.protocol.tags import skip_tags
from ottla.record.varint import read_unsigned_varint, write_unsigned_varint

OneProduced = tuple[int, int, Topic, int, int, int]
"""Acks, timeout in ms, topic, partition, position of the records and position after them."""
OneFetched = tuple[int, int, int, int, int, int, bytes, tuple[int, int, int, int, int, int]]
"""Maximum wait in ms, minimum and maximum bytes, isolation level, session id and epoch, topic id, and the fields of the
partition in the order of the wire."""

HEADER_FIELDS_BYTES = 10
"""Fields before the client id: API key, version, correlation id, and its length."""
TOPIC_ID_FROM = 13
"""First version with topic ids, of Produce and of Fetch."""
REPLICA_STATE_FROM = 15
TOPIC_ID_BYTES = 16
MAX_RECORDS_BYTES = 0x7FFFFF00
"""Upper bound of the records in a frame, whose size is an int32."""

_PRODUCE_BY_NAME = Struct(">BhiBB")
_PRODUCE_BY_ID = Struct(">BhiB16sBi")
_COUNT_INDEX = Struct(">Bi")
NO_TAGS_OF_ONE = bytes(3)
"""The empty tag sections of a partition, its topic and the message, which end a message with one partition."""
_PRODUCED_HEAD = Struct(">iiBB")
_PRODUCED = Struct(">BihqqqBBBBiB")
_INT32 = Struct(">i")
_FETCH_HEAD = Struct(">iiibiiB")
_FETCH_ONE = Struct(">16sBiiqiqiB")
_END_OF_FETCH = b"\0\x01\x01\0"
"""No tags of the topic, no forgotten topics, empty rack, no tags."""
_FETCHED = Struct(">iiBihiB16sBihqqqBi")


def _check_range(buffer: bytes | bytearray, start: int, end: int) -> None:
    if not 0 <= start <= end <= len(buffer):
        raise InvariantError("the range exceeds the buffer")


def read_client_id(
    buffer: bytes | bytearray, start: int, end: int, size: int, flexible: bool
) -> tuple[str | None, int]:
    """Parse the rest after `REQUEST_FIELDS` at `start`, which contain `size`: (client id, position after the header).

    Raises ProtocolError when the bytes end early.
    """
    _check_range(buffer, start, end)
    position = start + HEADER_FIELDS_BYTES
    client_id = None
    if size >= 0:
        stop = position + size
        if stop > end:
            raise ProtocolError("the client id exceeds the remaining bytes")
        client_id = buffer[position:stop].decode("utf-8", "replace")
        position = stop
    if flexible:
        position = position + 1 if position < end and not buffer[position] else skip_tags(buffer, position, end)
    return client_id, position


def parse_one_produce(version: int, buffer: bytearray, start: int, end: int) -> OneProduced | None:
    """Parse Produce, version 9 to 13, of one partition without a transactional id and without tags; None for others."""
    _check_range(buffer, start, end)
    topic: Topic
    if version >= TOPIC_ID_FROM:
        position = start + _PRODUCE_BY_ID.size
        if position >= end:
            return None
        named, acks, timeout_ms, topics, topic, partitions, index = _PRODUCE_BY_ID.unpack_from(buffer, start)
        if named or topics != 2:
            return None
    else:
        name_start = start + _PRODUCE_BY_NAME.size
        if name_start >= end:
            return None
        named, acks, timeout_ms, topics, size = _PRODUCE_BY_NAME.unpack_from(buffer, start)
        position = name_start + size - 1
        if named or topics != 2 or not 0 < size <= 0x7F or position + _COUNT_INDEX.size >= end:
            return None
        try:
            topic = buffer[name_start:position].decode()
        except UnicodeDecodeError:
            return None
        partitions, index = _COUNT_INDEX.unpack_from(buffer, position)
        position += _COUNT_INDEX.size
    if partitions != 2:
        return None
    try:
        size, position = read_unsigned_varint(buffer, position, end)
    except ProtocolError:
        return None
    stop = position + size - 1
    if not size or buffer[stop:end] != NO_TAGS_OF_ONE:
        return None
    return acks, timeout_ms, topic, index, position, stop


def pack_one_produced(
    correlation_id: int,
    topic: Topic,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    throttle_ms: int = 0,
) -> bytes:
    """Return the response frame of a flexible Produce version for one partition without an error."""
    named = topic if isinstance(topic, bytes) else _compact(topic)
    size = _PRODUCED_HEAD.size + len(named) + _PRODUCED.size
    head = _PRODUCED_HEAD.pack(size - _INT32.size, correlation_id, 0, 2)
    row = _PRODUCED.pack(2, index, 0, base_offset, log_append_time_ms, log_start_offset, 1, 0, 0, 0, throttle_ms, 0)
    return b"".join((head, named, row))


def _compact(text: str) -> bytes:
    encoded = text.encode()
    out = bytearray()
    write_unsigned_varint(out, len(encoded) + 1)
    return bytes(out) + encoded


def parse_one_fetch(version: int, buffer: bytearray, start: int, end: int) -> OneFetched | None:
    """Parse a consumer's Fetch request, version 13 to 18, with one partition, no forgotten topics, no rack and no tags;
    None for others.
    """
    _check_range(buffer, start, end)
    position = start
    if version < REPLICA_STATE_FROM:
        position += _INT32.size
        if position > end or _INT32.unpack_from(buffer, start)[0] != -1:
            return None
    one = position + _FETCH_HEAD.size
    stop = one + _FETCH_ONE.size
    if buffer[stop:end] != _END_OF_FETCH:
        return None
    *head, topics = _FETCH_HEAD.unpack_from(buffer, position)
    topic, partitions, *row, tags = _FETCH_ONE.unpack_from(buffer, one)
    if topics != 2 or partitions != 2 or tags:
        return None
    max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = head
    index, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, partition_max_bytes = row
    return (
        max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topic,
        (index, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, partition_max_bytes),
    )  # fmt: skip


def pack_one_fetched(
    correlation_id: int,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topic: bytes,
    result: Sequence[object],
    records_bytes: int,
) -> bytes:
    """Return the Fetch response frame, version 13 or later, up to the records of its one partition.

    `result` begins with index, error code, high watermark, last stable offset and log start offset; its items 6 and 7
    are the aborted transactions, none or None, and the preferred replica. Without records the frame is complete;
    otherwise they and `NO_TAGS_OF_ONE` follow.
    """
    if len(topic) != TOPIC_ID_BYTES or len(result) < 8 or not 0 <= records_bytes <= MAX_RECORDS_BYTES:
        raise InvariantError("a topic id, a result or a size of records is impossible")
    index, code, high_watermark, stable, start, _, aborted, replica, *_ = result
    size = bytearray()
    write_unsigned_varint(size, records_bytes + 1)
    length = _FETCHED.size + len(size) + records_bytes + len(NO_TAGS_OF_ONE)
    head = _FETCHED.pack(
        length - _INT32.size, correlation_id, 0, throttle_ms, error_code, session_id,
        2, topic, 2, index, code, high_watermark, stable, start, 0 if aborted is None else 1, replica,
    )  # fmt: skip
    return b"".join((head, size, b"" if records_bytes else NO_TAGS_OF_ONE))
