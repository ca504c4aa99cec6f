"""Envelope (58): version 0, on the controller's listener. A client's request that a broker hands on (KIP-590).

The request inside goes through the dispatcher as if it had come by itself, with the client's address for the log. Who
is not the active controller says so for the envelope, so that the broker asks the next one.
"""

from __future__ import annotations

import socket

from ottla.common.channel import Channel, Part
from ottla.common.errors import ErrorCode, InvariantError
from ottla.protocol.framing import SIZE_BYTES
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.request import Request


class EnvelopedChannel:
    """The connection of the broker, as the request inside sees it: its answer goes back in the envelope.

    Implements `Channel`.
    """

    __slots__ = ("_client_host", "_request")

    def __init__(self, request: Request, client_host: str) -> None:
        self._request = request
        self._client_host = client_host

    @property
    def _outer(self) -> Channel:
        return self._request.channel

    @property
    def id(self) -> int:
        """Of the broker's connection, of which one request is in work at a time."""
        return self._outer.id

    @property
    def client_host(self) -> str:
        return self._client_host

    @property
    def listener_name(self) -> str:
        return self._outer.listener_name

    @property
    def closed(self) -> bool:
        return self._outer.closed

    def respond(self, parts: list[Part]) -> None:
        self._request.answer(lambda: enveloped(parts))

    def close(self, reason: str) -> None:
        self._outer.close(reason)

    def refuse(self, code: ErrorCode) -> None:
        """The envelope comes back with an error, in place of an answer to the request inside."""
        self._request.answer(lambda: EnvelopeResponse(error_code=code))


def handle(context: BrokerContext, request: Request, message: EnvelopeRequest) -> EnvelopeResponse | None:
    """Serve the request inside."""
    if not context.controller.active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    data = bytearray(message.request_data)
    if not request.dispatcher.may_be_forwarded(data):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    channel = EnvelopedChannel(request, _address(bytes(message.client_host_address)))
    parts = request.dispatcher.handle(channel, data, 0, len(data))
    return None if parts is None else enveloped(parts)


def enveloped(parts: list[Part]) -> EnvelopeResponse:
    """The answer around the answer, whose size prefix goes."""
    data = bytearray()
    for part in parts:
        if not isinstance(part, bytes | bytearray | memoryview):
            raise InvariantError("a forwarded request was answered with stored records")
        data += part
    return EnvelopeResponse(response_data=bytes(data[SIZE_BYTES:]))


def _address(packed: bytes) -> str:
    try:
        return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
    except ValueError:
        return ""


def error_response(message: EnvelopeRequest, code: ErrorCode, text: str) -> EnvelopeResponse:
    """The bare error."""
    return EnvelopeResponse(error_code=code)


ENVELOPE = DeclaredApi(ApiKey.ENVELOPE, handle, error_response)
