"""TLS between one connection and its socket: handshake, decryption, encryption, on the loop (TLS 1.2 and 1.3).

The connection's transport is a wrapper of the plain one. Input is decrypted into the connection's own buffers. Output
goes encrypted to the socket itself as long as the plain transport is empty, like `ottla.net.wire`, except for files
by reference, whose bytes have to be read.

Invariants:
- A connection counts against the limits from its accept on, before a byte of the handshake is processed; it may be
  closed for waiting clients like any connection without a request.
- A handshake ends within `HANDSHAKE_TIMEOUT_S` and `MAX_HANDSHAKE_BYTES`, and at most `MAX_HANDSHAKES` run at a time:
  then the oldest one is closed. Before its first byte it holds no OpenSSL memory.
- At most `MAX_HANDSHAKES_PER_TICK` handshakes continue in one tick of the loop, the others in the next ticks, in order.
  The listener accepts no more in a tick either, so that a flood can't overtake a waiting client.
- No byte reaches the connection before the handshake is done, so every request has a principal.
- Renegotiation is off (the context's options), so a peer can't repeat the expensive part.

Not supported: kernel TLS, and encryption in the pool: OpenSSL's object is used by the loop only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.channel import FileRegion, Part
from ottla.common.platform.clock import TimerHandle
from ottla.common.platform.disk import Buffer
from ottla.metrics.registry import Counter
from ottla.net.sender import MAX_COPIED_BYTES, ReadJob, SendJob, copy_pieces
from ottla.net.wire import MAX_HANDSHAKES_PER_TICK, ConnectionHandler
from ottla.security.listener_tls import ListenerTls

logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 10.0
MAX_HANDSHAKE_BYTES = 128 * 1024
"""Input limit of a handshake: fits a chain of certificates; OpenSSL accepts no longer one."""
MAX_HANDSHAKES = 1_000
"""Each handshake in progress takes some 50 KiB."""
CIPHERTEXT_BYTES = 64 * 1024
"""One read from a socket, and one input of OpenSSL, whose buffer keeps the size of the largest input."""
LARGE_CIPHERTEXT_BYTES = 256 * 1024
"""One read while more than that is still missing of a frame."""
RECORD_BYTES = 16 * 1024
"""Input of one encryption call of OpenSSL."""

_NOTHING = memoryview(b"")


class TlsHandshakeLimiter:
    """Shared state of the TLS connections of one loop: buffers, and the list of running handshakes."""

    __slots__ = ("_handshakes", "_left", "_waiting", "failed", "received", "received_at_once", "scratch")

    def __init__(self, scratch: memoryview, failed: Counter) -> None:
        """`scratch` is free between calls; `failed` counts failed handshakes."""
        self.scratch = scratch[:MAX_COPIED_BYTES]
        self.received_at_once = memoryview(bytearray(LARGE_CIPHERTEXT_BYTES))
        """For large frames; `received` is its beginning."""
        self.received = self.received_at_once[:CIPHERTEXT_BYTES]
        self.failed = failed
        self._handshakes: dict[TlsTransport, None] = {}
        self._waiting: dict[TlsTransport, None] = {}
        """Handshakes that have input to continue with."""
        self._left = MAX_HANDSHAKES_PER_TICK
        """Handshakes that may still continue in this tick; if fewer than in a new tick, `_next_tick` is scheduled."""

    def begin(self, transport: TlsTransport) -> None:
        """Add a handshake; the oldest one is closed when there are too many."""
        if len(self._handshakes) >= MAX_HANDSHAKES:
            next(iter(self._handshakes)).fail("too many concurrent handshakes; this one is the oldest")
        self._handshakes[transport] = None

    def end(self, transport: TlsTransport) -> None:
        """Remove a completed or failed handshake; idempotent."""
        self._handshakes.pop(transport, None)
        self._waiting.pop(transport, None)

    def may_continue(self, transport: TlsTransport) -> bool:
        """Whether a handshake with input may continue now; if not, `shake_hands` is called later."""
        if self._waiting or not self._left:
            self._waiting[transport] = None
            return False
        self._begin_tick()
        self._left -= 1
        return True

    def _begin_tick(self) -> None:
        if self._left == MAX_HANDSHAKES_PER_TICK:
            asyncio.get_running_loop().call_soon(self._next_tick)

    def _next_tick(self) -> None:
        self._left = MAX_HANDSHAKES_PER_TICK
        if self._waiting:
            self._begin_tick()
        while self._waiting and self._left:
            self._left -= 1
            transport = next(iter(self._waiting))
            del self._waiting[transport]
            transport.shake_hands()

    @property
    def handshakes(self) -> int:
        """Number of running handshakes."""
        return len(self._handshakes)


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """The protocol of a plain transport, and the transport of a connection."""

    def __init__(self, tls: ListenerTls, room: TlsHandshakeLimiter, descriptor: int, served: ConnectionHandler) -> None:
        """`descriptor` is the socket's, written to as long as the plain transport is open and empty.

        -1: all output goes through the plain transport.
        """
        super().__init__()
        self._tls = tls
        self._room = room
        self._descriptor = descriptor
        self._served = served
        self._raw: asyncio.Transport | None = None
        self._buffer = room.received
        self._ciphertext = _NOTHING
        """Input that OpenSSL has not received yet: a view of the shared buffer, or a copy once reading is paused."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object: ssl.SSLObject | None = None
        self._timer: TimerHandle | None = None
        self._handshake_bytes = 0
        self._established = False
        self._paused = False
        self._closing = False

    # -- called by the plain transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the peer's handshake."""
        raw = self._raw = cast(asyncio.Transport, transport)
        raw.set_write_buffer_limits(high=0, low=0)
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_TIMEOUT_S, self._timed_out)
        self._served.connection_made(self)
        self._room.begin(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The plain transport has ended, for any reason."""
        self._closing = True
        self._end_handshake()
        self._object = None
        self._ciphertext = _NOTHING
        self._served.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next read."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Ciphertext has arrived."""
        if self._closing:
            return
        self._incoming.write(self._buffer[: min(nbytes, CIPHERTEXT_BYTES)])
        if self._established:
            if nbytes > CIPHERTEXT_BYTES:
                self._ciphertext = self._buffer[CIPHERTEXT_BYTES:nbytes]
            self._decrypt()
            if self._ciphertext:  # reading is paused, and others read into the shared buffer
                self._ciphertext = memoryview(bytes(self._ciphertext))
            return
        self._handshake_bytes += nbytes
        if self._handshake_bytes > MAX_HANDSHAKE_BYTES:
            self.fail("the handshake is too long")
        elif self._room.may_continue(self):
            self.shake_hands()

    def eof_received(self) -> bool:
        """The peer sends no more, whether it sent close_notify before or not."""
        if self._established and not self._closing:
            self._served.eof_received()
        return False

    def pause_writing(self) -> None:
        self._served.pause_writing()

    def resume_writing(self) -> None:
        self._served.resume_writing()

    # -- handshake

    def shake_hands(self) -> None:
        """Continue the handshake; once it is done, process the input behind it."""
        if self._object is None:
            self._object = self._tls.server.wrap_bio(self._incoming, self._outgoing, server_side=True)
        try:
            self._object.do_handshake()
            principal = self._tls.principal(self._object.getpeercert(binary_form=True))
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self.fail(error.reason or str(error))
            return
        except ValueError as error:  # the certificate maps to no principal
            self.fail(str(error))
            return
        self._established = True
        self._end_handshake()
        self._flush()
        self._served.identified(principal)
        self._decrypt()

    def _timed_out(self) -> None:
        self.fail(f"the handshake takes longer than {HANDSHAKE_TIMEOUT_S:g} s")

    def fail(self, reason: str) -> None:
        """Close because of invalid or missing input. A TLS alert may still leave."""
        self._end_handshake()
        if self._closing:
            return
        self._room.failed.value += 1
        logger.warning("closing %r: TLS: %s", self._served, reason, extra=RATE_LIMITED)
        self._flush()
        self.abort()

    def _end_handshake(self) -> None:
        self._room.end(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- input

    def _decrypt(self) -> None:
        """Decrypt the available input, a buffer at a time, and deliver it until the connection pauses."""
        tls = cast(ssl.SSLObject, self._object)
        served = self._served
        while not self._paused and not self._closing:
            with memoryview(served.get_buffer(-1)) as view:
                size = len(view)
                count, ended = self._fill(tls, view)
            if self._outgoing.pending:  # a key update, as in TLS 1.3
                self._flush()
            if count:
                served.buffer_updated(count)
            if ended is not None:
                if ended:
                    self.fail(ended)
                elif not self._closing:
                    served.eof_received()
                    self.close()
                return
            if count < size:
                room = self._room
                self._buffer = room.received_at_once if size > CIPHERTEXT_BYTES else room.received
                return

    def _fill(self, tls: ssl.SSLObject, view: memoryview) -> tuple[int, str | None]:
        """Bytes decrypted into `view`, and the reason of an end: "" after close_notify, else the error; None if open.

        Fewer bytes than there is room for: all available ciphertext is used up.
        """
        read = cast(Callable[[int, memoryview], int], tls.read)
        size = len(view)
        count = 0
        while count < size:
            try:
                got = read(size, view[count:])
            except ssl.SSLWantReadError:
                if not self._ciphertext:
                    return count, None
                self._incoming.write(self._ciphertext[:CIPHERTEXT_BYTES])
                self._ciphertext = self._ciphertext[CIPHERTEXT_BYTES:]
            except ssl.SSLZeroReturnError:
                return count, ""
            except ssl.SSLError as error:
                return count, error.reason or str(error)
            else:
                if got == 0:
                    return count, ""
                count += got
        return count, None

    def pause_reading(self) -> None:
        """Neither decrypt nor read."""
        if not self._paused and self._raw is not None:
            self._paused = True
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Decrypt the available input, then read."""
        if self._paused:
            self._paused = False
            asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        if self._paused or self._closing or self._raw is None:
            return
        if self._established:
            self._decrypt()
        if not self._paused and not self._closing:
            self._raw.resume_reading()

    # -- output

    def write(self, data: Buffer) -> None:
        """Encrypt, and send as much as the socket takes at once; the plain transport holds the rest."""
        if self._object is None or self._closing or not self._established:
            return
        view = memoryview(data)
        start = 0
        while start < len(view):
            start += self._object.write(view[start : start + RECORD_BYTES])
        self._flush()

    def _flush(self) -> None:
        raw = cast(asyncio.Transport, self._raw)
        if self._closing or not self._outgoing.pending:
            return
        data = self._outgoing.read()
        if self._descriptor >= 0 and raw.get_write_buffer_size() == 0:
            try:
                sent = os.write(self._descriptor, data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                logger.debug("%r: %s", self._served, error)
                self.abort()
                return
            data = data[sent:] if sent < len(data) else b""
        if data:
            raw.write(data)

    def get_write_buffer_size(self) -> int:
        """Bytes that the socket did not take yet."""
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Information of the plain transport, such as "peername"."""
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    # -- the end

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Close once the written output has left; sends close_notify."""
        if self._closing or self._raw is None:
            return
        if self._object is not None and self._established:
            with suppress(ssl.SSLError):  # the peer's close_notify is not awaited
                self._object.unwrap()
            self._flush()
        self._closing = True
        self._end_handshake()
        self._raw.close()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._end_handshake()
        if self._raw is not None:
            self._raw.abort()


class TlsWire:
    """A wire whose bytes all go encrypted through a `TlsTransport`. Implements `ottla.net.wire.Wire`."""

    __slots__ = ("_room", "_socket", "_tls", "_transport")

    descriptor = -1
    half_closes = False

    def __init__(self, accepted: socket.socket, tls: ListenerTls, room: TlsHandshakeLimiter) -> None:
        """Take ownership of `accepted`; the transport will close it."""
        self._socket = accepted
        self._tls = tls
        self._room = room
        self._transport: TlsTransport | None = None

    async def connect(self, loop: asyncio.AbstractEventLoop, protocol: ConnectionHandler) -> None:
        """See `Wire`."""
        transport = self._transport = TlsTransport(self._tls, self._room, self._socket.fileno(), protocol)
        await loop.connect_accepted_socket(lambda: transport, self._socket)

    def use(self, transport: asyncio.WriteTransport) -> None:
        """See `Wire`. The transport is already set up."""

    def close(self) -> None:
        """See `Wire`."""
        self._socket.close()

    def receive(self, view: memoryview) -> int:
        """See `Wire`. Only the transport decrypts."""
        return 0

    def write_pieces(self, pieces: list[Buffer]) -> int:
        """See `Wire`."""
        transport = cast(TlsTransport, self._transport)
        taken = 0
        while data := copy_pieces(pieces, taken, MAX_COPIED_BYTES):
            transport.write(data)
            taken += len(data)
            if transport.get_write_buffer_size():
                break
        return taken

    def write_before_region(self, pieces: list[Buffer]) -> int:
        """See `Wire`."""
        return self.write_pieces(pieces)

    def send_region(self, region: FileRegion, start: int, length: int) -> int:
        """See `Wire`. Bytes are read as they are encrypted."""
        transport = cast(TlsTransport, self._transport)
        if transport.get_write_buffer_size():
            raise BlockingIOError
        sent = 0
        while sent < length and not transport.get_write_buffer_size():
            try:
                count = region.try_read_into(self._room.scratch[: length - sent], start + sent)
            except BlockingIOError:
                if sent == 0:
                    raise
                break
            if count == 0:
                break
            transport.write(self._room.scratch[:count])
            sent += count
        return sent

    def job(self, parts: list[Part], skip: int, limit: int) -> SendJob:
        """See `Wire`. Only the reading runs in the pool."""
        return ReadJob(parts, skip)
