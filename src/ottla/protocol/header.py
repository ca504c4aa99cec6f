"""Request and response headers, and whole frames around a message.

A request header is key, version, correlation id and the client id as a nullable string in the classic form, in every
version; version 2 adds a tag section. A response header is the correlation id; version 1 adds a tag section.
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct
from typing import Any

from ottla.common.errors import ProtocolError
from ottla.common.platform.disk import Buffer
from ottla.protocol.codec import MAX_RESPONSE_ELEMENTS, read_in_place, read_message, write_in_steps, write_message
from ottla.protocol.framing import SIZE_BYTES
from ottla.protocol.registry import API
from ottla.protocol.tags import skip_tags

REQUEST_FIELDS = Struct(">hhih")
"""API key, version, correlation id, and the length of the client id that follows."""
_RESPONSE = Struct(">ii")
_SIZE = Struct(">i")
_CORRELATION = Struct(">i")


def encode_response(api_key: int, version: int, correlation_id: int, message: object) -> bytes:
    """Return a whole response frame, size prefix included. Raises KafkaError as `write_message` does."""
    out = _response_head(api_key, version, correlation_id)
    write_message(message, version, out)
    _SIZE.pack_into(out, 0, len(out) - SIZE_BYTES)
    return bytes(out)


def encode_response_in_steps(
    api_key: int, version: int, correlation_id: int, message: object
) -> Generator[None, None, bytes]:
    """`encode_response` in short steps; the message must not change between them."""
    out = _response_head(api_key, version, correlation_id)
    yield from write_in_steps(message, version, out)
    _SIZE.pack_into(out, 0, len(out) - SIZE_BYTES)
    return bytes(out)


def _response_head(api_key: int, version: int, correlation_id: int) -> bytearray:
    out = bytearray(_RESPONSE.pack(0, correlation_id))
    if API[api_key].response_header_version(version):
        out.append(0)
    return out


def request_frame(api_key: int, version: int, correlation_id: int, client_id: str | None, body: Buffer) -> bytes:
    """Return a whole request frame around an encoded message, size prefix included."""
    encoded = b"" if client_id is None else client_id.encode()
    header = REQUEST_FIELDS.pack(api_key, version, correlation_id, -1 if client_id is None else len(encoded))
    tags = b"\0" if API[api_key].request_header_version(version) == 2 else b""
    size = _SIZE.pack(len(header) + len(encoded) + len(tags) + len(body))
    return b"".join((size, header, encoded, tags, body))


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, message: object) -> bytes:
    """Return a whole request frame, size prefix included. Raises KafkaError as `write_message` does."""
    body = bytearray()
    write_message(message, version, body)
    return request_frame(api_key, version, correlation_id, client_id, body)


def response_body(api_key: int, version: int, buffer: Buffer, start: int, end: int) -> tuple[int, int]:
    """Return (correlation id, position of the message) of the response in `buffer[start:end]`; raises ProtocolError."""
    position = start + _CORRELATION.size
    if end < position:
        raise ProtocolError("a response ends within its header")
    correlation_id: int = _CORRELATION.unpack_from(buffer, start)[0]
    if API[api_key].response_header_version(version):
        position = skip_tags(buffer, position, end)
    return correlation_id, position


def decode_response(api_key: int, version: int, buffer: Buffer, *, in_place: bool = False) -> tuple[int, Any]:
    """Return (correlation id, message) of a response frame without its size prefix; raises ProtocolError.

    `in_place`: records are views of `buffer`, otherwise the message shares no memory with it.
    """
    end = len(buffer)
    correlation_id, position = response_body(api_key, version, buffer, 0, end)
    message: Any
    if in_place:
        view = memoryview(buffer)[position:]
        return correlation_id, read_in_place(API[api_key].response, version, view, MAX_RESPONSE_ELEMENTS)
    message, _ = read_message(API[api_key].response, version, buffer, position, end, MAX_RESPONSE_ELEMENTS)
    return correlation_id, message
