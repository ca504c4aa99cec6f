"""Client connections as the broker sees them, and the parts of a response.

Implemented by `ottla.net` on sockets and by the simulator in memory. The contract between a channel and the request
dispatcher:

- A connection has one request in progress; later frames wait in the connection. So requests take effect in
  arrival order and responses leave in that order, also behind a parked fetch or a produce that waits for fsync.
- `Dispatcher.handle` either returns the response at once or returns None: then `Channel.respond` follows exactly once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.common.platform.disk import Buffer
from ottla.common.platform.endpoint import ListenerInfo


class FileRegion(Protocol):
    """A range of stored bytes that a response carries; holds a reference on its segment until `release`."""

    @property
    def length(self) -> int: ...

    def read_into(self, view: memoryview, start: int) -> int:
        """Copy bytes of the region from `start` on into `view`; may be short, may block on the disk."""
        ...

    def try_read_into(self, view: memoryview, start: int) -> int:
        """Read without blocking; raises BlockingIOError if the page cache does not have the bytes."""
        ...

    @property
    def by_reference(self) -> bool:
        """Return whether `send` may be used: the bytes are committed, and the kernel can read their file."""
        ...

    def send(self, socket: int, start: int, length: int) -> int:
        """Send `length` bytes from `start` on to a non-blocking socket by reference; may be short, never 0.

        A later change of the file changes bytes that the peer has not received yet. Waits for pages that are not
        cached. Raises BlockingIOError when the socket's buffer is full.
        """
        ...

    def is_cold(self, start: int, length: int) -> bool:
        """Return whether those bytes are not cached, or only by recent read-ahead: the loop should not read them.

        False where the system cannot determine it.
        """
        ...

    def release(self) -> None:
        """Release the reference; called exactly once, by the last user of the response part."""
        ...


Part = Buffer | FileRegion
"""One piece of a response. Buffers do not change after they are passed on."""


class Channel(Protocol):
    """One client connection."""

    @property
    def id(self) -> int:
        """Unique in the lifetime of the process."""
        ...

    @property
    def client_host(self) -> str: ...

    @property
    def principal(self) -> str:
        """Principal of the client, as "User:name"; `ottla.common.kafka.acl.ANONYMOUS` without authentication."""
        ...

    @property
    def listener(self) -> ListenerInfo:
        """Listener that accepted the connection."""
        ...

    @property
    def closed(self) -> bool: ...

    def respond(self, parts: list[Part]) -> None:
        """Complete the parked request; an empty list means no response. Releases regions if closed."""
        ...

    def mute(self, duration_s: float, *, restart: bool = False, more: Callable[[], float] | None = None) -> None:
        """Read and serve nothing for `duration_s`, for a client above its quota (KIP-219).

        The current request is still answered. A longer mute stays in force. With `restart`, only a running mute is
        replaced, also by a shorter one. `more` is called when the time is over: the mute continues for the returned
        seconds, until it returns 0.
        """
        ...

    def close(self, reason: str) -> None:
        """Close after everything already sent has left; idempotent."""
        ...


class IdentifiedChannel(Channel, Protocol):
    """Connection with client authentication."""

    def identified(self, principal: str) -> None:
        """Set the authenticated principal."""
        ...


class ClientChannel(Channel, Protocol):
    """Connection whose client can be described, for subscriptions of client metrics (KIP-714)."""

    client_software: tuple[str, str] | None
    """Name and version of the client's library from ApiVersions (KIP-511), if the broker keeps them."""

    @property
    def client_port(self) -> int | None:
        """Port of the client; None if unknown."""
        ...


class Dispatcher(Protocol):
    """Receiver of a listener's frames."""

    def handle(self, channel: Channel, buffer: bytearray, start: int, end: int) -> list[Part] | None:
        """Serve one request, `buffer[start:end]` without its size prefix.

        The buffer is the caller's, writable in that range, and valid only during the call. Returns the response
        with its size prefix (empty list: none is due), or None when it was parked. Raises
        `ottla.common.errors.ProtocolError` when the connection must close.
        """
        ...

    def connection_closed(self, channel: Channel) -> None:
        """The peer disconnected or the channel closed: drop its parked requests."""
        ...


class Gate(Protocol):
    """Filter in front of a connection's dispatcher until its client has authenticated."""

    @property
    def max_request_bytes(self) -> int | None:
        """Maximum size of the next request; None for the usual limit."""
        ...

    @property
    def open(self) -> bool:
        """Return whether authentication is complete: the dispatcher gets the next request directly."""
        ...

    def handle(self, channel: IdentifiedChannel, buffer: bytearray, start: int, end: int) -> list[Part] | None:
        """See `Dispatcher.handle`."""
        ...
