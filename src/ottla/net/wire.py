"""The wire: transfers bytes between one connection and its peer, below frames and responses.

This is the complete interface between a connection with its output and the layer below. Input comes from the transport
by `asyncio.BufferedProtocol`, directly into the connections' buffers; pausing it, closing and aborting are operations
of the transport, too. Output takes shorter paths where the wire is the socket itself (`PlainWire`); an encrypting wire
sends all bytes through its transport.

Invariant: the socket is written only while its transport is empty (`ottla.net.outbound` ensures that).
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Protocol

from ottla.common.platform.channel import FileRegion, Part
from ottla.common.platform.disk import Buffer
from ottla.net.sender import SendJob

MAX_HANDSHAKES_PER_TICK = 8
"""TLS handshakes: each takes a signature and two curve multiplications, a millisecond together."""
_MSG_MORE = getattr(socket, "MSG_MORE", 0)


class ConnectionHandler(asyncio.BufferedProtocol):
    """A protocol on top of a wire."""

    __slots__ = ()

    def identified(self, principal: str) -> None:
        """The wire has authenticated the peer, before it delivers a byte; a plain wire never calls this."""


class ClientConnection(ConnectionHandler):
    """The protocol of a client, which has a port."""

    __slots__ = ()

    _transport: asyncio.Transport | None

    @property
    def client_port(self) -> int | None:
        """See `ottla.common.platform.channel.ClientChannel`."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return name[1] if isinstance(name, tuple) else None


class Wire(Protocol):
    """The layer below a connection, from the accept on. Belongs to one connection."""

    @property
    def descriptor(self) -> int:
        """The descriptor for writes that bypass the transport; -1 if none is allowed."""
        ...

    @property
    def half_closes(self) -> bool:
        """Whether output can still be sent to a peer that has ended its input."""
        ...

    async def connect(self, loop: asyncio.AbstractEventLoop, protocol: ConnectionHandler) -> None:
        """Have the loop create a transport for `protocol`. Raises OSError, with no call of `protocol`."""
        ...

    def use(self, transport: asyncio.WriteTransport) -> None:
        """Configure the new transport: any byte that stays in it pauses writing, an empty one resumes it."""
        ...

    def close(self) -> None:
        """Free the socket if it has no transport."""
        ...

    def receive(self, view: memoryview) -> int:
        """Read once without blocking, while the transport does not read. 0: only the transport can continue.

        It is needed to wait for input, at the end of input, after an error, and where input is encrypted.
        """
        ...

    def write_pieces(self, pieces: list[Buffer]) -> int:
        """Write once without blocking. Returns the bytes taken, 0 when the socket is full. Raises OSError."""
        ...

    def write_before_region(self, pieces: list[Buffer]) -> int:
        """Like `write_pieces`, immediately before a region sent with `send_region`."""
        ...

    def send_region(self, region: FileRegion, start: int, length: int) -> int:
        """Send cached bytes of a region that may leave by reference; returns the bytes taken, never 0.

        Raises BlockingIOError when the socket is full, OSError.
        """
        ...

    def job(self, parts: list[Part], skip: int, limit: int) -> SendJob:
        """A pool job that reads `parts` from byte `skip` of the first one, and sends about `limit` bytes."""
        ...


class PlainWire:
    """Unencrypted bytes: output goes to the accepted socket itself, files from the page cache by `sendfile`."""

    __slots__ = ("_socket", "descriptor")

    half_closes = True

    def __init__(self, accepted: socket.socket) -> None:
        """Take ownership of `accepted` for the transport; written to only while the transport is open."""
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

    def receive(self, view: memoryview) -> int:
        """See `Wire`."""
        try:
            return self._socket.recv_into(view)
        except OSError:
            return 0

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
