"""Declared messages over a `PeerConnection`: one call sends a request and delivers its response message.

Nodes of one cluster run the same version of this program, so each request uses its newest version; a peer that
doesn't know it closes the connection. Versions are not negotiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.common.errors import ProtocolError
from ottla.common.platform.peer import PeerConnection
from ottla.protocol.codec import MAX_RESPONSE_ELEMENTS, read_message, write_message
from ottla.protocol.registry import spec_of_request

MessageDone = Callable[[Any, BaseException | None], None]
"""The response message, or the error: ConnectionError, TimeoutError, ProtocolError."""


def send_message(connection: PeerConnection, message: object, done: MessageDone, timeout_s: float) -> None:
    """Send a request in its newest version; `done` is called once, not before this returns.

    A response that can't be parsed closes the connection: the bytes after it can't be trusted either. Raises
    KafkaError UNSUPPORTED_VERSION when the newest version can't carry the message.
    """
    spec = spec_of_request(message)
    version = spec.max_version
    body = bytearray()
    write_message(message, version, body)

    def answered(data: memoryview | None, error: BaseException | None) -> None:
        if data is None:
            done(None, error)
            return
        response: Any
        try:
            response, _ = read_message(spec.response, version, data, 0, len(data), MAX_RESPONSE_ELEMENTS)
        except ProtocolError as damage:
            connection.close()
            done(None, damage)
            return
        done(response, None)

    connection.request(spec.key, version, body, answered, timeout_s)
