"""Shared parts of the hand-written Produce and Fetch codecs: topics by name or id, strings, leader endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from ottla.record.varint import write_unsigned_varint

Topic = str | bytes
"""A name in older versions, a 16-byte id in newer ones (KIP-516)."""

MAX_STRING_BYTES = 0x7FFF
_INT16 = Struct(">h")
_INT32 = Struct(">i")


class NodeEndpoint(NamedTuple):
    """Address of a partition's current leader (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def append_count(out: bytearray, flexible: bool, count: int) -> None:
    """Append the length of an array or of records."""
    if not flexible:
        out += _INT32.pack(count)
    elif count < 0x7F:
        out.append(count + 1)
    else:
        write_unsigned_varint(out, count + 1)


def append_topic(out: bytearray, flexible: bool, topic: Topic) -> None:
    """Append a topic id unchanged, or a name with its length."""
    if isinstance(topic, bytes):
        out += topic
        return
    append_nullable_string(out, flexible, topic)


def append_nullable_string(out: bytearray, flexible: bool, text: str | None) -> None:
    """Append a string or null, in compact or classic form; a string above Kafka's maximum is truncated."""
    if text is None:
        out += b"\0" if flexible else b"\xff\xff"
        return
    encoded = text.encode()
    if len(encoded) > MAX_STRING_BYTES:
        encoded = encoded[:MAX_STRING_BYTES].decode(errors="ignore").encode()
    if flexible:
        write_unsigned_varint(out, len(encoded) + 1)
    else:
        out += _INT16.pack(len(encoded))
    out += encoded


def append_node_endpoints(out: bytearray, endpoints: Sequence[NodeEndpoint]) -> None:
    """Append the last tag section of a Produce or Fetch response, with the endpoints as tag 0 if there are any."""
    if not endpoints:
        out.append(0)
        return
    body = bytearray()
    write_unsigned_varint(body, len(endpoints) + 1)
    for endpoint in endpoints:
        body += _INT32.pack(endpoint.node_id)
        append_nullable_string(body, True, endpoint.host)
        body += _INT32.pack(endpoint.port)
        append_nullable_string(body, True, endpoint.rack)
        body.append(0)
    out += b"\x01\0"
    write_unsigned_varint(out, len(body))
    out += body
