"""Hand-written Fetch codec: parses requests from the receive buffer, builds responses around file regions.

Records of a response are never copied here: a partition has a `FileRegion`, or bytes, and the frame is the list of
parts that the connection sends in order. The declared classes of `messages.fetch` are the reference in a parity test.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from ottla.common.errors import ProtocolError
from ottla.common.kafka.ids import ZERO_UUID
from ottla.common.platform.channel import FileRegion, Part
from ottla.protocol.codec import MAX_REQUEST_ELEMENTS
from ottla.protocol.framing import SIZE_BYTES
from ottla.protocol.hot import NO_TAGS_OF_ONE, TOPIC_ID_FROM, OneFetched, pack_one_fetched
from ottla.protocol.primitives import NodeEndpoint, Topic, append_count, append_node_endpoints, append_nullable_string
from ottla.protocol.tags import iter_tags, skip_tags
from ottla.record.varint import read_unsigned_varint, write_unsigned_varint

FLEXIBLE_FROM = 12
BATCHES_FROM = 4
"""First version with record batches; earlier ones contain message sets of formats v0 and v1."""
REPLICA_STATE_FROM = 15
_UNBOUNDED = (1 << 31) - 1
_READ_UNCOMMITTED = 0
UNKNOWN_HIGH_WATERMARK = (1 << 63) - 1
"""High watermark of a replica that does not report it (KIP-1166)."""

INLINE_RECORDS_BYTES = 1024
"""Records in bytes up to this size are copied into the frame instead of becoming a part of their own."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_HEAD_0 = Struct(">iii")
_HEAD_3 = Struct(">iiii")
_HEAD_4 = Struct(">iiiib")
_HEAD_7 = Struct(">iiiibii")
_HEAD_15 = Struct(">iiibii")
_PARTITION_4 = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_12 = Struct(">iiqiqi")
_UNTAGGED_12 = Struct(">iiqiqix")
_REPLICA_STATE = Struct(">iq")
_HEADER = Struct(">ii")
_HEADER_FLEXIBLE = Struct(">iiBihi")
_HEADER_7 = Struct(">iiihi")
_HEADER_0 = Struct(">ii")
_HEADER_4 = Struct(">iii")
_RESULT_0 = Struct(">ihq")
_RESULT_4 = Struct(">ihqq")
_RESULT_5 = Struct(">ihqqq")
_RESULT_12 = Struct(">ihqqqBi")
_NO_RECORDS_NO_TAGS = b"\x01\0"
_PAIR = Struct(">qq")
_EPOCH_OFFSET = Struct(">BBiqB")
_LEADER = Struct(">BBiiB")
_SNAPSHOT = Struct(">BBqiB")


_USUAL_END = b"\x01\x01\0"
"""Empty list of forgotten topics, empty rack, no tags."""


class FetchPartition(NamedTuple):
    """One partition of a fetch request; fields that the version lacks have Kafka's defaults."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = UNKNOWN_HIGH_WATERMARK


_NO_PARTITION_TAGS = (ZERO_UUID, UNKNOWN_HIGH_WATERMARK)


class ParsedFetchRequest:
    """A fetch request. `session_id` 0 and `session_epoch` -1 mean a full fetch without a session (KIP-227).

    `replica_state` is (replica id, replica epoch); `replica_id` is taken from it if the version has it.
    """

    __slots__ = (
        "cluster_id",
        "forgotten",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack_id",
        "replica_id",
        "replica_state",
        "session_epoch",
        "session_id",
        "topics",
    )

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.replica_id = -1
        self.replica_state = (-1, -1)
        self.max_wait_ms = 0
        self.min_bytes = 0
        self.max_bytes = 0
        self.isolation_level = 0
        self.session_id = 0
        self.session_epoch = -1
        self.topics: list[tuple[Topic, list[FetchPartition]]] = []
        self.forgotten: list[tuple[Topic, list[int]]] = []
        self.rack_id = ""


class FetchPartitionResult(NamedTuple):
    """Result of one partition in a fetch response.

    `aborted_transactions` are (producer id, first offset), None under read_uncommitted; `diverging_epoch` is (epoch,
    end offset), `current_leader` (leader id, leader epoch), `snapshot_id` (end offset, epoch). `records` None is sent
    as an empty set: a null has confused clients.
    """

    partition_index: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: FileRegion | bytes | None = None
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None
    snapshot_id: tuple[int, int] | None = None


def request_of_one(one: OneFetched) -> ParsedFetchRequest:
    """Return the same as `parse_fetch` for a request that `hot.parse_one_fetch` has parsed."""
    request = ParsedFetchRequest()
    (
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        topic,
        row,
    ) = one
    request.topics = [(topic, [tuple.__new__(FetchPartition, row + _NO_PARTITION_TAGS)])]
    return request


def parse_fetch(
    version: int, buffer: bytearray, start: int, end: int, max_elements: int = MAX_REQUEST_ELEMENTS
) -> ParsedFetchRequest:
    """Parse the request body in `buffer[start:end]`, versions 0 to 18; raises ProtocolError for malformed bytes."""
    try:
        if version >= FLEXIBLE_FROM:
            return _parse_flexible(version, buffer, start, end, max_elements)
        return _parse_classic(version, buffer, start, end, max_elements)
    except UnicodeDecodeError:
        raise ProtocolError(f"Fetch v{version} contains a string that is not UTF-8") from None
    except (IndexError, StructError):
        raise ProtocolError(f"Fetch v{version} ends too early") from None


def _exceeds(field: str) -> ProtocolError:
    return ProtocolError(f"{field} of a Fetch request exceeds the remaining bytes")


def _parse_classic(version: int, buffer: bytearray, start: int, end: int, max_elements: int) -> ParsedFetchRequest:
    request = ParsedFetchRequest()
    head = _HEAD_7 if version >= 7 else _HEAD_4 if version >= BATCHES_FROM else _HEAD_3 if version == 3 else _HEAD_0
    values = head.unpack_from(buffer, start)
    if version < BATCHES_FROM:
        values += (_READ_UNCOMMITTED,) if version == 3 else (_UNBOUNDED, _READ_UNCOMMITTED)
    request.replica_id, request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level = values[:5]
    request.replica_state = (request.replica_id, -1)
    if version >= 7:
        request.session_id, request.session_epoch = values[5:]
    position = start + head.size
    layout = _PARTITION_9 if version >= 9 else _PARTITION_5 if version >= 5 else _PARTITION_4
    topic_count, position = _classic_count(buffer, position, end, 6)
    budget = max_elements - topic_count
    if budget < 0:
        raise ProtocolError("a Fetch request has more topics than allowed")
    for _ in range(topic_count):
        topic, position = _classic_string(buffer, position, end)
        count, position = _classic_count(buffer, position, end, layout.size)
        budget -= count
        if budget < 0:
            raise ProtocolError("a Fetch request has more partitions than allowed")
        stop = position + count * layout.size
        rows = layout.iter_unpack(buffer[position:stop])
        if version >= 9:
            partitions = [FetchPartition(p, epoch, offset, -1, log, size) for p, epoch, offset, log, size in rows]
        elif version >= 5:
            partitions = [FetchPartition(p, -1, offset, -1, log, size) for p, offset, log, size in rows]
        else:
            partitions = [FetchPartition(p, -1, offset, -1, -1, size) for p, offset, size in rows]
        request.topics.append((topic, partitions))
        position = stop
    if version >= 7:
        position = _parse_classic_forgotten(request, buffer, position, end, budget)
    if version >= 11:
        request.rack_id, position = _classic_string(buffer, position, end)
    if position > end:
        raise _exceeds("the body")
    return request


def _parse_classic_forgotten(
    request: ParsedFetchRequest, buffer: bytearray, position: int, end: int, budget: int
) -> int:
    topic_count, position = _classic_count(buffer, position, end, 6)
    budget -= topic_count
    if budget < 0:
        raise ProtocolError("a Fetch request has more topics than allowed")
    for _ in range(topic_count):
        topic, position = _classic_string(buffer, position, end)
        count, position = _classic_count(buffer, position, end, 4)
        budget -= count
        if budget < 0:
            raise ProtocolError("a Fetch request forgets more partitions than allowed")
        stop = position + count * 4
        request.forgotten.append((topic, [index for (index,) in _INT32.iter_unpack(buffer[position:stop])]))
        position = stop
    return position


def _classic_count(buffer: bytearray, position: int, end: int, smallest: int) -> tuple[int, int]:
    """Return a count of elements of at least `smallest` bytes, and the position after it."""
    (count,) = _INT32.unpack_from(buffer, position)
    position += 4
    if count < 0 or count * smallest > end - position:
        raise _exceeds("a count")
    return count, position


def _classic_string(buffer: bytearray, position: int, end: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(buffer, position)
    position += 2
    if size < 0 or size > end - position:
        raise _exceeds("a string")
    return buffer[position : position + size].decode(), position + size


def _parse_flexible(version: int, buffer: bytearray, start: int, end: int, max_elements: int) -> ParsedFetchRequest:
    new_tuple = tuple.__new__
    request = ParsedFetchRequest()
    position = start
    if version < REPLICA_STATE_FROM:
        (request.replica_id,) = _INT32.unpack_from(buffer, start)
        request.replica_state = (request.replica_id, -1)
        position += 4
    (
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
    ) = _HEAD_15.unpack_from(buffer, position)
    position += _HEAD_15.size
    topic_count, position = _compact_count(buffer, position, end, 3)
    budget = max_elements - topic_count
    if budget < 0:
        raise ProtocolError("a Fetch request has more topics than allowed")
    for _ in range(topic_count):
        topic, position = _flexible_topic(version, buffer, position, end)
        count, position = _compact_count(buffer, position, end, _PARTITION_12.size + 1)
        budget -= count
        if budget < 0:
            raise ProtocolError("a Fetch request has more partitions than allowed")
        stop = position + count * _UNTAGGED_12.size
        if any(buffer[position + _PARTITION_12.size : stop : _UNTAGGED_12.size]):
            partitions, position = _parse_tagged_partitions(version, count, buffer, position, end)
        else:
            rows = _UNTAGGED_12.iter_unpack(buffer[position:stop])
            # Equivalent to a call of the class, which takes three times as long.
            partitions = [new_tuple(FetchPartition, row + _NO_PARTITION_TAGS) for row in rows]
            position = stop
        position = skip_tags(buffer, position, end)
        request.topics.append((topic, partitions))
    if buffer[position:end] == _USUAL_END:
        return request
    position = _parse_flexible_forgotten(request, version, buffer, position, end, budget)
    request.rack_id, position = _compact_string(buffer, position, end)
    _parse_request_tags(request, version, buffer, position, end)
    return request


def _parse_tagged_partitions(
    version: int, count: int, buffer: bytearray, position: int, end: int
) -> tuple[list[FetchPartition], int]:
    """Parse rows of which at least one has tags, so that the positions of later rows vary."""
    partitions = []
    for _ in range(count):
        partition = FetchPartition(*_PARTITION_12.unpack_from(buffer, position))
        partition, position = _parse_partition_tags(version, partition, buffer, position + _PARTITION_12.size, end)
        partitions.append(partition)
    return partitions, position


def _parse_partition_tags(
    version: int, partition: FetchPartition, buffer: bytearray, position: int, end: int
) -> tuple[FetchPartition, int]:
    for tag, start, stop in iter_tags(buffer, position, end):
        if tag < 0:
            position = start
        elif tag == 0 and version >= 17:
            if stop - start != 16:
                raise ProtocolError("a replica directory id has the wrong size")
            partition = partition._replace(replica_directory_id=bytes(buffer[start:stop]))
        elif tag == 1 and version >= 18:
            if stop - start != 8:
                raise ProtocolError("a high watermark has the wrong size")
            partition = partition._replace(high_watermark=_INT64.unpack_from(buffer, start)[0])
    return partition, position


def _parse_flexible_forgotten(
    request: ParsedFetchRequest, version: int, buffer: bytearray, position: int, end: int, budget: int
) -> int:
    topic_count, position = _compact_count(buffer, position, end, 3)
    budget -= topic_count
    if budget < 0:
        raise ProtocolError("a Fetch request has more topics than allowed")
    for _ in range(topic_count):
        topic, position = _flexible_topic(version, buffer, position, end)
        count, position = _compact_count(buffer, position, end, 4)
        budget -= count
        if budget < 0:
            raise ProtocolError("a Fetch request forgets more partitions than allowed")
        stop = position + count * 4
        request.forgotten.append((topic, [index for (index,) in _INT32.iter_unpack(buffer[position:stop])]))
        position = skip_tags(buffer, stop, end)
    return position


def _parse_request_tags(request: ParsedFetchRequest, version: int, buffer: bytearray, position: int, end: int) -> None:
    for tag, start, stop in iter_tags(buffer, position, end):
        if tag == 0:
            request.cluster_id, behind = _compact_nullable(buffer, start, stop)
            if behind != stop:
                raise ProtocolError("a cluster id has the wrong size")
        elif tag == 1 and version >= REPLICA_STATE_FROM:
            if stop - start <= _REPLICA_STATE.size:
                raise ProtocolError("a replica state has the wrong size")
            request.replica_state = _REPLICA_STATE.unpack_from(buffer, start)
            request.replica_id = request.replica_state[0]
            if skip_tags(buffer, start + _REPLICA_STATE.size, stop) != stop:
                raise ProtocolError("a replica state has the wrong size")


def _compact_count(buffer: bytearray, position: int, end: int, smallest: int) -> tuple[int, int]:
    count = buffer[position]  # inline, as nearly all counts have one byte; checked against the remaining bytes below
    position += 1
    if count > 0x7F:
        count, position = read_unsigned_varint(buffer, position - 1, end)
    count -= 1
    if count < 0 or count * smallest > end - position:
        raise _exceeds("a count")
    return count, position


def _compact_nullable(buffer: bytearray, position: int, end: int) -> tuple[str | None, int]:
    size, position = read_unsigned_varint(buffer, position, end)
    if not size:
        return None, position
    stop = position + size - 1
    if stop > end:
        raise _exceeds("a string")
    return buffer[position:stop].decode(), stop


def _compact_string(buffer: bytearray, position: int, end: int) -> tuple[str, int]:
    text, position = _compact_nullable(buffer, position, end)
    if text is None:
        raise ProtocolError("a string of a Fetch request is null")
    return text, position


def _flexible_topic(version: int, buffer: bytearray, position: int, end: int) -> tuple[Topic, int]:
    if version < TOPIC_ID_FROM:
        return _compact_string(buffer, position, end)
    stop = position + 16
    if stop > end:
        raise _exceeds("a topic id")
    return bytes(buffer[position:stop]), stop


def encode_fetch_response(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topics: Sequence[tuple[Topic, Sequence[FetchPartitionResult]]],
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Part]:
    """Return the parts of a whole response frame, size prefix included in the first.

    Regions pass to the caller in the parts; an empty one is released at once. Fields that a version lacks are left out:
    the session and top-level error below 7, log start offsets below 5, the last stable offset below 4, the throttle
    time below 1, the preferred replica below 11, diverging epoch, leader and snapshot below 12, `node_endpoints` below
    16.
    """
    if version >= TOPIC_ID_FROM and len(topics) == 1 and not node_endpoints:
        topic, results = topics[0]
        if len(results) == 1 and isinstance(topic, bytes):
            parts = _encode_one(correlation_id, throttle_ms, error_code, session_id, topic, results[0])
            if parts is not None:
                return parts
    out = _response_head(version, correlation_id, throttle_ms, error_code, session_id)
    flexible = version >= FLEXIBLE_FROM
    packed = [out]
    parts = [out]
    records_bytes = 0
    append_count(out, flexible, len(topics))
    for topic, partitions in topics:
        if isinstance(topic, bytes):
            out += topic
        else:
            append_nullable_string(out, flexible, topic)
        append_count(out, flexible, len(partitions))
        for result in partitions:
            index, error_code, high_watermark, stable, start, records, aborted, replica, diverging, leader, snapshot = (
                result
            )
            if flexible and not aborted:
                none_aborted = 0 if aborted is None else 1
                out += _RESULT_12.pack(index, error_code, high_watermark, stable, start, none_aborted, replica)
            else:
                _append_result(out, version, result)
            if records is None and flexible and diverging is leader is snapshot is None:
                out += _NO_RECORDS_NO_TAGS  # the case of most partitions in most fetches
                continue
            size = 0 if records is None else _records_size(records)
            append_count(out, flexible, size)
            if records is not None:
                if isinstance(records, bytes) and size <= INLINE_RECORDS_BYTES:
                    out += records
                elif size:
                    records_bytes += size
                    out = bytearray()
                    packed.append(out)
                    parts += (records, out)
                elif not isinstance(records, bytes):
                    records.release()
            if flexible:
                _append_result_tags(out, result)
        if flexible:
            out.append(0)
    if flexible:
        append_node_endpoints(out, node_endpoints if version >= 16 else ())
    _INT32.pack_into(packed[0], 0, sum(map(len, packed)) + records_bytes - SIZE_BYTES)
    if not out:
        parts.pop()
    return parts


def _encode_one(
    correlation_id: int,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topic: bytes,
    result: FetchPartitionResult,
) -> list[Part] | None:
    """Encode the usual response of a consumer at the tail: one partition, by topic id, without tags; None for
    others."""
    _, _, _, _, _, records, aborted, _, diverging, leader, snapshot = result
    if aborted or diverging is not None or leader is not None or snapshot is not None or isinstance(records, bytes):
        return None
    size = 0 if records is None else records.length
    head = pack_one_fetched(correlation_id, throttle_ms, error_code, session_id, topic, result, size)
    if records is None:
        return [head]
    if size:
        return [head, records, NO_TAGS_OF_ONE]
    records.release()
    return [head]


def _response_head(version: int, correlation_id: int, throttle_ms: int, error_code: int, session_id: int) -> bytearray:
    if version >= FLEXIBLE_FROM:
        return bytearray(_HEADER_FLEXIBLE.pack(0, correlation_id, 0, throttle_ms, error_code, session_id))
    if version >= 7:
        return bytearray(_HEADER_7.pack(0, correlation_id, throttle_ms, error_code, session_id))
    if version:
        return bytearray(_HEADER_4.pack(0, correlation_id, throttle_ms))
    return bytearray(_HEADER_0.pack(0, correlation_id))


def _records_size(records: FileRegion | bytes) -> int:
    if isinstance(records, bytes):
        return len(records)
    return records.length


def _append_result(out: bytearray, version: int, result: FetchPartitionResult) -> None:
    """Append the fields of a partition before its records, unless it has the usual row of a flexible version."""
    if version >= 5:
        out += _RESULT_5.pack(*result[:5])
    elif version >= BATCHES_FROM:
        out += _RESULT_4.pack(*result[:4])
    else:
        out += _RESULT_0.pack(*result[:3])
        return
    aborted = result.aborted_transactions
    if version >= FLEXIBLE_FROM:
        write_unsigned_varint(out, 0 if aborted is None else len(aborted) + 1)
        for pair in aborted or ():
            out += _PAIR.pack(*pair)
            out.append(0)
    else:
        out += _INT32.pack(-1 if aborted is None else len(aborted))
        for pair in aborted or ():
            out += _PAIR.pack(*pair)
    if version >= 11:
        out += _INT32.pack(result.preferred_read_replica)


def _append_result_tags(out: bytearray, result: FetchPartitionResult) -> None:
    """Append diverging epoch, current leader and snapshot id as tags 0, 1 and 2, each a struct with an empty tag
    section."""
    diverging, leader, snapshot = result.diverging_epoch, result.current_leader, result.snapshot_id
    out.append((diverging is not None) + (leader is not None) + (snapshot is not None))
    if diverging is not None:
        out += _EPOCH_OFFSET.pack(0, 13, *diverging, 0)
    if leader is not None:
        out += _LEADER.pack(1, 9, *leader, 0)
    if snapshot is not None:
        out += _SNAPSHOT.pack(2, 13, *snapshot, 0)
