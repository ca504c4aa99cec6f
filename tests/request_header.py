"""Headers of requests, as tests read them at once; the broker reads the fields where it needs them."""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.errors import ProtocolError
from ottla.protocol.header import REQUEST_FIELDS
from ottla.protocol.hot import read_client_id
from ottla.protocol.registry import API


class RequestHeader(NamedTuple):
    """The header of one request; `body_start` is the position of the first byte after it."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int


def parse_request_header(buffer: bytes | bytearray, start: int, end: int) -> RequestHeader:
    """Parse the header of the request in `buffer[start:end]`.

    The version may be unsupported: the caller checks `ApiSpec.supports`. Raises ProtocolError when the bytes end early
    or the API is unknown, since then even the header's layout is unknown.
    """
    if end - start < REQUEST_FIELDS.size:
        raise ProtocolError("a request ends within its header")
    api_key, api_version, correlation_id, size = REQUEST_FIELDS.unpack_from(buffer, start)
    spec = API.get(api_key)
    if spec is None:
        raise ProtocolError(f"unknown API key {api_key}")
    client_id, body_start = read_client_id(buffer, start, end, size, api_version >= spec.flexible_from)
    return RequestHeader(api_key, api_version, correlation_id, client_id, body_start)
