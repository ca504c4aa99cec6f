"""The way of the bytes between one connection and its peer, below frames and answers.

A connection and its output ask no more than this of what is below them. Input comes from the transport by
`asyncio.BufferedProtocol`, so the bytes lie in the connections' buffers at once; pausing it, closing and aborting are
the transport's, too. Output has shorter ways where the wire is the socket itself, and a wire knows which: what is said
here for the plain one (`PlainWire`) can be said for one that encrypts, whose bytes must all go through its transport.

Invariant: the socket is written only while its transport holds nothing (`ottla.net.outbound` sees to that).
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Protocol

from ottla.common.platform.channel import FileRegion, Part
from ottla.common.platform.disk import Buffer
from ottla.net.sender import SendJob

MAX_HANDSHAKES_PER_TURN = 8
"""Of TLS: a signature and two products of curves each, a millisecond together. Then others get their turn."""
_MSG_MORE = getattr(socket, "MSG_MORE", 0)


class ConnectionHandler(asyncio.BufferedProtocol):
    """What stands on a wire."""

    __slots__ = ()

    def identified(self, principal: str) -> None:
        """The wire found out who the peer is, before it delivers a byte of it; of a plain one it never does."""


class Wire(Protocol):
    """What a connection stands on, from the accept on. Belongs to one connection."""

    @property
    def descriptor(self) -> int:
        """Where bytes may be written that pass the transport by; -1 where none may."""
        ...

    @property
    def half_closes(self) -> bool:
        """Whether a peer that has ended its input can still be sent to."""
        ...

    async def connect(self, loop: asyncio.AbstractEventLoop, protocol: ConnectionHandler) -> None:
        """Have the loop make a transport for `protocol`. Raises OSError; then `protocol` was told of none."""
        ...

    def use(self, transport: asyncio.WriteTransport) -> None:
        """Set up the transport that was made: any byte that stays in it pauses writing, an empty one resumes it."""
        ...

    def close(self) -> None:
        """Free the socket, of which no transport was made."""
        ...

    def write_pieces(self, pieces: list[Buffer]) -> int:
        """One write that does not wait. How many bytes were taken, 0 when there is no room. Raises OSError."""
        ...

    def write_before_region(self, pieces: list[Buffer]) -> int:
        """The same, where a region follows at once by `send_region`."""
        ...

    def send_region(self, region: FileRegion, start: int, length: int) -> int:
        """Send cached bytes of a region that may leave by reference; how many were taken, never 0.

        Raises BlockingIOError when there is no room, OSError.
        """
        ...

    def job(self, parts: list[Part], skip: int, limit: int) -> SendJob:
        """What reads `parts` in the pool, from byte `skip` of the first on, and sends about `limit` bytes."""
        ...


class PlainWire:
    """Bytes as they are: output goes to the accepted socket itself, files from the page cache by `sendfile`."""

    __slots__ = ("_socket", "descriptor")

    half_closes = True

    def __init__(self, accepted: socket.socket) -> None:
        """`accepted` will belong to the transport; written to only as long as that is open."""
        self._socket = accepted
        self.descriptor = accepted.fileno()

    async def connect(self, loop: asyncio.AbstractEventLoop, protocol: ConnectionHandler) -> None:
        """See `Wire`."""
        await loop.connect_accepted_socket(lambda: protocol, self._socket)

    def use(self, transport: asyncio.WriteTransport) -> None:
        """See `Wire`."""
        transport.set_write_buffer_limits(high=0, low=0)

    def close(self) -> None:
        """See `Wire`."""
        self._socket.close()

    def write_pieces(self, pieces: list[Buffer]) -> int:
        """See `Wire`."""
        try:
            return os.write(self.descriptor, pieces[0]) if len(pieces) == 1 else os.writev(self.descriptor, pieces)
        except (BlockingIOError, InterruptedError):
            return 0

    def write_before_region(self, pieces: list[Buffer]) -> int:
        """See `Wire`. The bytes wait in the socket for those of the region, so that one packet carries both."""
        try:
            return self._socket.sendmsg(pieces, (), _MSG_MORE)
        except (BlockingIOError, InterruptedError):
            return 0

    def send_region(self, region: FileRegion, start: int, length: int) -> int:
        """See `Wire`."""
        return region.send(self.descriptor, start, length)

    def job(self, parts: list[Part], skip: int, limit: int) -> SendJob:
        """See `Wire`."""
        return SendJob(self.descriptor, parts, skip, limit)
