"""Channel of a forwarded request: the broker's connection as the inner request sees it (KIP-590)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, InvariantError
from ottla.common.platform.channel import Channel, Part
from ottla.common.platform.endpoint import ListenerInfo
from ottla.protocol.framing import SIZE_BYTES
from ottla.server.requests.request import Request

if TYPE_CHECKING:
    from ottla.protocol.messages.envelope import EnvelopeResponse


class EnvelopedChannel:
    """Implements `Channel`: represents the client behind the broker; its response returns in the envelope."""

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
        """Id of the broker's connection, which has one request in progress at a time."""
        return self._outer.id

    @property
    def listener(self) -> ListenerInfo:
        return self._outer.listener

    @property
    def closed(self) -> bool:
        return self._outer.closed

    def respond(self, parts: list[Part]) -> None:
        self._request.answer(lambda: enveloped(parts))

    def mute(self, duration_s: float, *, restart: bool = False, more: Callable[[], float] | None = None) -> None:
        """No effect: the forwarding broker mutes the client, and other clients share this connection."""

    def close(self, reason: str) -> None:
        self._outer.close(reason)

    def refuse(self, code: ErrorCode) -> None:
        """Answer the envelope with an error, instead of a response to the inner request."""
        from ottla.protocol.messages.envelope import EnvelopeResponse  # imported here: for controllers

        self._request.answer(lambda: EnvelopeResponse(error_code=code))


def enveloped(parts: list[Part]) -> EnvelopeResponse:
    """The envelope with the inner response, without its size prefix."""
    from ottla.protocol.messages.envelope import EnvelopeResponse  # imported here: for controllers

    data = bytearray()
    for part in parts:
        if not isinstance(part, bytes | bytearray | memoryview):
            raise InvariantError("the response of a forwarded request contains file regions")
        data += part
    return EnvelopeResponse(response_data=bytes(data[SIZE_BYTES:]))
