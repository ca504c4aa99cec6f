"""Responses on their way out of one connection (architecture.md 2, "Output").

Bytes go straight to the transport's own descriptor with one `writev` as long as nothing waits. What the socket doesn't
take is copied, at most `MAX_COPIED_BYTES`, into the transport; everything later waits for `resume_writing` as the parts
that the broker handed over, not as bytes. File regions are read into a scratch buffer that all connections share, or,
where the page cache can't serve them, by the pool into a buffer of their own.

Invariants:
- The scratch buffer goes only to an immediate non-blocking write, never to `transport.write`: the transport keeps a
  reference, and the next user of the scratch would change the bytes under it.
- The descriptor is written only while the transport holds nothing, so that bytes never overtake each other, and never
  after `abandon`.
- Every region is released exactly once: when its last byte was taken over, or by `abandon`; one that the pool still
  reads is released when that read is back.

Left out: `sendfile` (a tie with preadv on loopback, and it blocks on cold pages), TLS (its transport must encrypt).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.common.channel import FileRegion, Part
from ottla.common.clock import BlockingPool
from ottla.common.disk import Buffer
from ottla.common.logs import RATE_LIMITED
from ottla.metrics.registry import Counter

logger = logging.getLogger(__name__)

SCRATCH_BYTES = 1024 * 1024
"""Reading a usual fetch response (1 MiB) in one go and sending it in one call; smaller was no better."""
MAX_COPIED_BYTES = 256 * 1024
"""The most that one connection has in its transport, and the size of a cold read."""
MAX_BYTES_PER_TURN = 4 * 1024 * 1024
"""After that many bytes the other connections get their turn."""
MAX_PIECES = 512
"""Buffers in one writev; below the system's limit of 1024."""

BUFFER_TYPES: Final = (bytes, bytearray, memoryview)
"""A part that is none of these is a file region."""


class Scratch:
    """The buffer that the connections of one loop share for reading regions."""

    __slots__ = ("view",)

    def __init__(self, size: int = SCRATCH_BYTES) -> None:
        self.view = memoryview(bytearray(size))


def release_parts(parts: list[Part]) -> None:
    """Give back the regions of a response that will not be sent."""
    for part in parts:
        if not isinstance(part, BUFFER_TYPES):
            part.release()


class Outbound:
    """The output side of one connection; owned and driven by it.

    `on_idle` is called when the last byte has been taken over after a wait (never from inside `send`), `on_failure`
    with a reason when the connection can't go on.
    """

    __slots__ = (
        "_bytes_out",
        "_cold",
        "_fd",
        "_loop",
        "_offset",
        "_on_failure",
        "_on_idle",
        "_pool",
        "_queue",
        "_scratch",
        "_transport",
        "_transport_full",
        "busy",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.WriteTransport,
        fd: int,
        scratch: Scratch,
        pool: BlockingPool,
        bytes_out: Counter,
        on_idle: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._fd = fd
        self._scratch = scratch
        self._pool = pool
        self._bytes_out = bytes_out
        self._on_idle = on_idle
        self._on_failure = on_failure
        self._queue: deque[Part] = deque()
        self._offset = 0
        """Bytes of the first part in the queue that were taken over already."""
        self._transport_full = False
        self._cold: FileRegion | None = None
        """The region that the pool is reading, at the head of the queue."""
        self.busy = False
        """Something waits: the connection must not serve another request."""

    def send(self, parts: list[Part]) -> None:
        """Send a response, or several of them in order. Takes over the regions in every case."""
        if self._fd < 0:
            release_parts(parts)
            return
        if not self.busy and len(parts) == 1:
            part = parts[0]
            if isinstance(part, BUFFER_TYPES):
                try:
                    count = os.write(self._fd, part)
                except (BlockingIOError, InterruptedError):
                    count = 0
                except OSError as error:
                    self._fail(error)
                    return
                self._bytes_out.value += count
                if count == len(part):
                    return
                self._offset = count
        self._queue.extend(parts)
        if not self.busy:
            self._pump()

    def transport_full(self) -> None:
        """The transport holds bytes (`pause_writing`)."""
        self._transport_full = True

    def transport_empty(self) -> None:
        """The transport has sent all it held (`resume_writing`)."""
        self._transport_full = False
        self._continue()

    def abandon(self) -> None:
        """The connection is gone: drop the queue, release the regions, touch the descriptor never again. Idempotent."""
        self._fd = -1
        queue, self._queue = self._queue, deque()
        self._offset = 0
        if self._cold is not None:
            queue.popleft()  # released when the pool is done with it
        release_parts(list(queue))

    @property
    def queued_parts(self) -> int:
        """Parts that wait; for tests and diagnosis."""
        return len(self._queue)

    def _continue(self) -> None:
        """Go on after a wait, and tell the owner when nothing waits any more."""
        if self._fd < 0 or not self.busy or self._cold is not None or self._transport_full:
            return
        if self._pump():
            self._on_idle()

    def _pump(self) -> bool:
        """Write until the queue is empty or something must be waited for; sets `busy`, and returns its opposite."""
        budget = MAX_BYTES_PER_TURN
        while self._queue and self._fd >= 0:
            if budget <= 0:
                self._loop.call_soon(self._continue)
                break
            try:
                pieces, total = self._gather()
                if pieces:
                    written = _write_pieces(self._fd, pieces)
                    self._advance(written)
                    budget -= written
                    if written < total:
                        self._hand_to_transport(pieces, written)
                    if self._transport_full:
                        break
                elif total < 0:
                    self._read_cold()
                    break
            except OSError as error:
                self._fail(error)
                return False
        self.busy = bool(self._queue) or self._transport_full
        return not self.busy and self._fd >= 0

    def _gather(self) -> tuple[list[Buffer], int]:
        """What can be written now from the head of the queue, and its length; ([], -1) when its region is cold.

        Pops parts of length zero, so that an empty answer means progress too.
        """
        self._advance(0)
        pieces: list[Buffer] = []
        total = 0
        used = 0
        skip = self._offset
        scratch = self._scratch.view
        room = len(scratch)
        for part in self._queue:
            if isinstance(part, BUFFER_TYPES):
                piece: Buffer = memoryview(part)[skip:] if skip else part
                pieces.append(piece)
                total += len(piece)
            else:
                left = part.length - skip
                try:
                    count = part.try_read_into(scratch[used : used + min(left, room - used)], skip) if left else 0
                except BlockingIOError:
                    count = 0
                if count == 0 and left:
                    return (pieces, total) if pieces else (pieces, -1)
                if count:
                    pieces.append(scratch[used : used + count])
                used += count
                total += count
                if count < left or used == room:
                    break
            skip = 0
            if len(pieces) >= MAX_PIECES or total >= MAX_BYTES_PER_TURN:
                break
        return pieces, total

    def _hand_to_transport(self, pieces: list[Buffer], written: int) -> None:
        """The socket is full: copy what follows, up to the bound, so that the transport waits for room."""
        rest = _copy_rest(pieces, written, MAX_COPIED_BYTES)
        self._advance(len(rest))
        self._transport.write(rest)

    def _advance(self, count: int) -> None:
        """Take `count` bytes off the queue, releasing the regions that are done."""
        self._bytes_out.value += count
        queue = self._queue
        count += self._offset
        while queue:
            part = queue[0]
            if isinstance(part, BUFFER_TYPES):
                length = len(part)
                if count < length:
                    break
                queue.popleft()
            else:
                length = part.length
                if count < length:
                    break
                queue.popleft()
                part.release()
            count -= length
        self._offset = count

    def _read_cold(self) -> None:
        region = self._queue[0]
        if isinstance(region, BUFFER_TYPES):
            return
        self._cold = region
        start = self._offset
        length = min(region.length - start, MAX_COPIED_BYTES)

        def work() -> memoryview:
            # Allocated in the thread: as many of these exist as threads, not as connections that wait.
            view = memoryview(bytearray(length))
            return view[: region.read_into(view, start)]

        self._pool.submit(work, self._cold_done)

    def _cold_done(self, data: memoryview | None, error: BaseException | None) -> None:
        region, self._cold = self._cold, None
        if self._fd < 0:
            if region is not None:
                region.release()
            return
        if data is None or len(data) == 0:
            # The size of the response is on the wire already; nothing but closing is honest.
            reason = f"stored bytes of a response can't be read: {error or 'the file is shorter'}"
            logger.warning("a connection closes: %s", reason, extra=RATE_LIMITED)
            self._on_failure(reason)
            return
        try:
            written = _write_pieces(self._fd, [data])
        except OSError as write_error:
            self._fail(write_error)
            return
        if written < len(data):
            # This buffer is nobody else's, so the transport may keep it.
            self._transport.write(data[written:])
        self._advance(len(data))
        self._continue()

    def _fail(self, error: OSError) -> None:
        reason = f"{type(error).__name__}: {error.strerror or error}"
        if not isinstance(error, ConnectionError):
            # Not the peer's doing: the disk, or the network of this machine.
            logger.warning("a connection closes: %s", reason, extra=RATE_LIMITED)
        self._on_failure(reason)


def _write_pieces(fd: int, pieces: list[Buffer]) -> int:
    """One non-blocking write; 0 when the socket takes nothing."""
    try:
        return os.write(fd, pieces[0]) if len(pieces) == 1 else os.writev(fd, pieces)
    except (BlockingIOError, InterruptedError):
        return 0


def _copy_rest(pieces: list[Buffer], skip: int, limit: int) -> bytes:
    """A copy of the bytes after the first `skip`, at most `limit` of them."""
    rest: list[memoryview] = []
    for piece in pieces:
        if skip >= len(piece):
            skip -= len(piece)
            continue
        view = memoryview(piece)[skip : skip + limit]
        skip = 0
        rest.append(view)
        limit -= len(view)
        if limit == 0:
            break
    return b"".join(rest)
