"""Simulated client: encoded requests on one connection, one at a time, responses matched by correlation id.

Not included: timeouts, retries and version selection of real clients, which callers implement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.registry import ApiKey
from simulation.checkers import Violation
from simulation.loop import SimLoop
from simulation.network import Address, Link, Network

REQUEST_TIMEOUT_S = 5.0
_PREFIX_BYTES = 4


Proxy = Callable[[Address | None, ApiKey, int, bytes], bool]
"""Sees each request with its address, key, version and frame; returns whether the frame is forwarded."""


class RequestLost(Exception):
    """No response: refused, disconnected, or timed out. The outcome of the request is unknown."""


class Client:
    """One connection, opened on demand."""

    genuine = True
    """Whether the last response came from the current coordinator; a coordinator may move and not know it."""
    lasting = True
    """Whether the state of the last response also binds the next coordinator, unless it is changed before."""

    def __init__(self, loop: SimLoop, network: Network, name: str, address: Address | None = None) -> None:
        """Connects to `address`, or to the network's bootstrap address."""
        self._loop = loop
        self._network = network
        self.address = address
        self.name = name
        self.proxy: Proxy = lambda address, key, version, frame: True
        self._link: Link | None = None
        self._correlation_id = 0
        self._waiting: asyncio.Future[bytes] | None = None

    async def request(self, key: ApiKey, version: int, message: object, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """Send a request and wait. Raises RequestLost; then the connection is closed too."""
        link = self._link or self._connect()
        self._correlation_id += 1
        correlation_id = self._correlation_id
        answer = self._waiting = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self._lose, "timed out")
        try:
            frame = encode_request(key, version, correlation_id, self.name, message)
            if self.proxy(self.address, key, version, frame):
                link.send(frame)
            data = await answer
        finally:
            timer.cancel()
            self._waiting = None
            if not answer.done() or answer.cancelled():
                self.close()  # the caller was cancelled: the response must not go to the next request
        got, response = decode_response(key, version, data[_PREFIX_BYTES:])
        if got != correlation_id:
            raise Violation(f"{self.name} sent request {correlation_id} and received response {got}")
        return response

    def _connect(self) -> Link:
        link = self._network.connect(self.name, self.address)
        if link is None:
            raise RequestLost("refused")
        link.on_frame = self._received
        link.on_close = lambda: self._lose("closed")
        self._link = link
        return link

    def _received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():
            raise Violation(f"{self.name} received a response without a request")
        self._waiting.set_result(data)

    def _lose(self, why: str) -> None:
        self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(RequestLost(why))

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def die(self) -> None:
        """The process ends; sent requests may still arrive."""
        link, self._link = self._link, None
        if link is not None:
            link.die()
