"""The connection of a broker that hands on a client's request, as the request inside sees it (KIP-590)."""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.errors import ErrorCode, InvariantError
from ottla.common.platform.channel import Channel, Part
from ottla.common.platform.endpoint import ListenerInfo
from ottla.protocol.framing import SIZE_BYTES
from ottla.protocol.messages.envelope import EnvelopeResponse
from ottla.server.requests.request import Request


class EnvelopedChannel:
    """Implements `Channel`: the client is the one behind the broker, and its answer goes back in the envelope."""

    __slots__ = ("_request", "client_host", "principal")

    def __init__(self, request: Request, client_host: str, principal: str) -> None:
        self._request = request
        self.client_host = client_host
        self.principal = principal

    @property
    def _outer(self) -> Channel:
        return self._request.channel

    @property
    def id(self) -> int:
        """Of the broker's connection, of which one request is in work at a time."""
        return self._outer.id

    @property
    def listener(self) -> ListenerInfo:
        return self._outer.listener

    @property
    def closed(self) -> bool:
        return self._outer.closed

    def respond(self, parts: list[Part]) -> None:
        self._request.answer(lambda: enveloped(parts))

    def mute(self, duration_s: float, *, anew: bool = False, more: Callable[[], float] | None = None) -> None:
        """Nothing: the broker in front of the client holds it, and others ask by the same connection."""

    def close(self, reason: str) -> None:
        self._outer.close(reason)

    def refuse(self, code: ErrorCode) -> None:
        """The envelope comes back with an error, in place of an answer to the request inside."""
        self._request.answer(lambda: EnvelopeResponse(error_code=code))


def enveloped(parts: list[Part]) -> EnvelopeResponse:
    """The answer around the answer, whose size prefix goes."""
    data = bytearray()
    for part in parts:
        if not isinstance(part, bytes | bytearray | memoryview):
            raise InvariantError("a forwarded request was answered with stored records")
        data += part
    return EnvelopeResponse(response_data=bytes(data[SIZE_BYTES:]))
