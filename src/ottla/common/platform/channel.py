"""Connections as the broker sees them, and what a response is made of.

Implemented by `ottla.net` on sockets and by the simulator in memory. The contract between a channel and the request
dispatcher:

- One request of a connection is in work at a time; later frames wait in the connection. So requests take effect in
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
        """The same without blocking; raises BlockingIOError where the page cache can't serve it."""
        ...

    @property
    def by_reference(self) -> bool:
        """Whether `send` may be used: the bytes are committed, and the kernel can read their file by itself."""
        ...

    def send(self, socket: int, start: int, length: int) -> int:
        """Have a non-blocking socket take `length` bytes from `start` on by reference; may be short, never 0.

        What the peer has not received yet changes with the file. Waits for pages that are not cached. Raises
        BlockingIOError when the socket takes nothing.
        """
        ...

    def is_cold(self, start: int, length: int) -> bool:
        """Whether those bytes are not cached, or only just were by reading ahead: the loop had better not touch them.

        False where the system can't tell.
        """
        ...

    def release(self) -> None:
        """Give the reference back; called exactly once, by whoever holds the response part last."""
        ...


Part = Buffer | FileRegion
"""One piece of a response. Buffers are not changed by their maker once handed over."""


class Channel(Protocol):
    """One client connection."""

    @property
    def id(self) -> int:
        """Unique in the life of the process."""
        ...

    @property
    def client_host(self) -> str: ...

    @property
    def principal(self) -> str:
        """Who the client is, as "User:name"; `ottla.common.kafka.acl.ANONYMOUS` where nobody asked."""
        ...

    @property
    def listener(self) -> ListenerInfo:
        """Where it came in."""
        ...

    @property
    def closed(self) -> bool: ...

    def respond(self, parts: list[Part]) -> None:
        """Finish the parked request; an empty list means that it has no response. Releases regions if closed."""
        ...

    def mute(self, duration_s: float, *, anew: bool = False, more: Callable[[], float] | None = None) -> None:
        """Read nothing and serve nothing for so long, as is due to a client above its quota (KIP-219).

        The request in work is answered all the same. A mute that lasts longer stands. With `anew` there is a mute only
        where one runs already, and in its place, though it may be shorter. `more` is asked when the time is over: it
        goes on for so many seconds as that says, until it says 0.
        """
        ...

    def close(self, reason: str) -> None:
        """Close once what was already sent has left; idempotent."""
        ...


class IdentifiedChannel(Channel, Protocol):
    """A connection that learns who its client is."""

    def identified(self, principal: str) -> None:
        """The client is `principal` from now on."""
        ...


class Dispatcher(Protocol):
    """What a listener hands its frames to."""

    def handle(self, channel: Channel, buffer: bytearray, start: int, end: int) -> list[Part] | None:
        """Serve one request, `buffer[start:end]` without its size prefix.

        The buffer is the caller's, writable in that range, and valid only during the call. Returns the response
        with its size prefix (empty list: none is due), or None when it was parked. Raises
        `ottla.common.errors.ProtocolError` when the connection must close.
        """
        ...

    def connection_closed(self, channel: Channel) -> None:
        """The peer went away or the channel closed: drop what is parked for it."""
        ...


class Gate(Protocol):
    """Stands before the dispatcher of one connection until its client has said who it is."""

    @property
    def max_request_bytes(self) -> int | None:
        """How large a request may be now; None where the usual limit is right."""
        ...

    @property
    def open(self) -> bool:
        """Whether it is needed no more: the dispatcher gets the next request itself."""
        ...

    def handle(self, channel: IdentifiedChannel, buffer: bytearray, start: int, end: int) -> list[Part] | None:
        """As `Dispatcher.handle`."""
        ...
