"""Requests to other nodes through `PeerNetwork`, an interface to brokers and controllers.

Implemented by `ottla.net.peer` on sockets and by the simulator in memory. The contract:

- Requests of one connection leave in the order of the calls and are answered in that order; several may be in flight.
- `done` is called exactly once for each request, never within `request` itself: with the body of the response, or with
  an error (ConnectionError, TimeoutError) after which it is unknown whether the peer acted on the request.
- A failed connection stays failed; its owner decides when to create a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ottla.common.platform.disk import Buffer

Address = tuple[str, int]
"""(host, port) of a node's listener for other nodes."""

PeerDone = Callable[[memoryview | None, BaseException | None], None]
"""Callback with the response's body without header, valid only during the call, or the error."""

ControllerDone = Callable[[Any, BaseException | None], None]
"""Callback with the response message, or the error (KafkaError NOT_CONTROLLER, ConnectionError, TimeoutError)."""


class PeerConnection(Protocol):
    """One connection to one node.

    Implementation: `net.peer.SocketPeerConnection`.
    """

    @property
    def failed(self) -> bool:
        """Return whether the connection failed, broke, or was closed: no further request will succeed."""
        ...

    def request(self, api_key: int, api_version: int, body: Buffer, done: PeerDone, timeout_s: float) -> None:
        """Send one request; the connection adds header, size and correlation id."""
        ...

    def close(self) -> None:
        """Close the connection: requests in flight fail with ConnectionError. Idempotent."""
        ...


class PeerNetwork(Protocol):
    """Factory of connections to other nodes.

    Implementations: in `net.peer` and `zookeeper.migrating`.
    """

    def connect(self, host: str, port: int) -> PeerConnection:
        """Start a connection; requests wait until it is established."""
        ...


class Peers(NamedTuple):
    """Networks to other nodes: each kind has its own listener, and may use another security protocol."""

    brokers: PeerNetwork
    controllers: PeerNetwork


class ControllerRequests(Protocol):
    """Requests to the active controller, in this process or behind a connection.

    Implementation: `server.requests.forwarding`.
    """

    def send(self, message: object, done: ControllerDone, timeout_s: float) -> None:
        """Send one request message in its newest version, once; the caller retries."""
        ...
