"""ShareFetch responses around file regions: records are never copied here.

The frame is a list of parts that the connection sends in order. The declared classes of `messages.share_fetch` parse
requests, and are the reference of a parity test for responses. Versions 1 and 2 have the same response.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from ottla.common.platform.channel import FileRegion, Part
from ottla.protocol.framing import SIZE_BYTES
from ottla.protocol.primitives import NodeEndpoint, append_count, append_nullable_string
from ottla.record.varint import write_unsigned_varint

_HEAD = Struct(">iiBih")
"""Size, correlation id, tags of the header, throttle time, error code."""
_INT32 = Struct(">i")
_INT16 = Struct(">h")
_RESULT = Struct(">ih")
_LEADER = Struct(">iiB")
_ACQUIRED = Struct(">qqhB")
NO_LEADER = (-1, -1)


class SharePartitionResult(NamedTuple):
    """Result of one partition: `acquired` are (first offset, last offset, delivery count), all offsets inclusive."""

    partition_index: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    current_leader: tuple[int, int] = NO_LEADER
    records: FileRegion | None = None
    acquired: Sequence[tuple[int, int, int]] = ()


def encode_share_fetch_response(
    correlation_id: int,
    error_code: int,
    error_message: str | None,
    lock_timeout_ms: int,
    topics: Sequence[tuple[bytes, Sequence[SharePartitionResult]]],
    node_endpoints: Sequence[NodeEndpoint] = (),
    *,
    throttle_ms: int = 0,
) -> list[Part]:
    """Return the parts of a whole response frame; regions pass to the caller in them, and none of them is empty."""
    out = bytearray(_HEAD.pack(0, correlation_id, 0, throttle_ms, error_code))
    append_nullable_string(out, True, error_message)
    out += _INT32.pack(lock_timeout_ms)
    packed = [out]
    parts: list[Part] = [out]
    records_bytes = 0
    append_count(out, True, len(topics))
    for topic_id, results in topics:
        out += topic_id
        append_count(out, True, len(results))
        for result in results:
            out += _RESULT.pack(result.partition_index, result.error_code)
            append_nullable_string(out, True, result.error_message)
            out += _INT16.pack(result.acknowledge_error_code)
            append_nullable_string(out, True, result.acknowledge_error_message)
            out += _LEADER.pack(*result.current_leader, 0)
            records = result.records
            if records is None:
                out.append(1)  # an empty set: a null has confused clients
            else:
                write_unsigned_varint(out, records.length + 1)
                records_bytes += records.length
                out = bytearray()
                packed.append(out)
                parts += (records, out)
            append_count(out, True, len(result.acquired))
            for acquired in result.acquired:
                out += _ACQUIRED.pack(*acquired, 0)
            out.append(0)
        out.append(0)
    append_count(out, True, len(node_endpoints))
    for endpoint in node_endpoints:
        out += _INT32.pack(endpoint.node_id)
        append_nullable_string(out, True, endpoint.host)
        out += _INT32.pack(endpoint.port)
        append_nullable_string(out, True, endpoint.rack)
        out.append(0)
    out.append(0)
    _INT32.pack_into(packed[0], 0, sum(map(len, packed)) + records_bytes - SIZE_BYTES)
    return parts
