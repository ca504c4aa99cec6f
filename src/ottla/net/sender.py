"""Thread-pool jobs that read file regions outside of the page cache, and send them to a client.

On the loop they would delay all other connections, even by a non-blocking read: `RWF_NOWAIT` submits the disk's
work, including the kernel's readahead. So a `SendJob` sends the parts at the head of one connection's queue, until the
socket is full or the job's limit is reached. With TLS a `ReadJob` only reads; the connection encrypts and sends.
`net.outbound` submits the jobs.

Invariants:
- A `SendJob` writes to a duplicate of the socket's descriptor: otherwise a connection that ends meanwhile could free
  its number for another one. There are at most as many duplicates as running jobs.
- At most `MAX_JOBS` run at a time, in order of arrival, so that threads stay free for the requests of producers. Only
  that many buffers exist. A waiting job has neither a buffer nor a duplicate, and is dropped with its connection.

Not here: sendfile, which `net.outbound` uses for cached regions (here the disk is the bottleneck); and
`posix_fadvise`, since the kernel already reads ahead for sequential readers.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.common.platform.channel import Part
from ottla.common.platform.clock import BlockingPool
from ottla.common.platform.disk import Buffer

MAX_JOBS = 2
"""Of the pool's threads (`ottla.app.pool.MAX_THREADS`); four took CPU from producers, and sent no more."""
READ_BYTES = 1024 * 1024
"""One read: a usual fetch response, since each call costs a hand-over of the GIL; smaller was slower."""
MAX_COPIED_BYTES = 256 * 1024
"""Maximum bytes of one connection in its transport."""

REFILL_BYTES = 64 * 1024
"""Copied for the transport when the socket is full, so that it waits for room; the next job reads the rest again."""

SHORT_FILE = "can't read the stored bytes of a response: the file is shorter"

BUFFER_TYPES: Final = (bytes, bytearray, memoryview)
"""A part that is none of these is a file region."""

Outcome = tuple[int, bytes]
"""Bytes that the socket took, and the remaining bytes, which wait for room; empty when all were sent."""
Done = Callable[[Outcome | None, BaseException | None], None]


class SendJob:
    """Parts of one connection being sent. Its creator keeps them from being released while it `runs`."""

    __slots__ = ("_duplicate", "_fd", "_limit", "_skip", "cancelled", "parts", "runs")

    def __init__(self, fd: int, parts: list[Part], skip: int, limit: int) -> None:
        """Send about `limit` bytes of `parts`, from byte `skip` of the first one."""
        self._fd = fd
        self._duplicate = -1
        self._skip = skip
        self._limit = limit
        self.parts = parts
        self.runs = False
        self.cancelled = False
        """Set before the job runs: it never runs, and `done` is not called."""

    def begin(self) -> None:
        """Runs on the loop, while the connection still has its descriptor. Raises OSError without a free descriptor."""
        self._duplicate = os.dup(self._fd)
        self.runs = True

    def run(self, scratch: memoryview) -> Outcome:
        """Runs in the pool, with exclusive use of `scratch`. Raises OSError when the disk or the peer fails."""
        try:
            return self._send(scratch)
        finally:
            os.close(self._duplicate)

    def _send(self, scratch: memoryview) -> Outcome:
        sent = 0
        skip = self._skip
        for part in self.parts:
            length = len(part) if isinstance(part, BUFFER_TYPES) else part.length
            while skip < length:
                if sent >= self._limit:
                    return sent, b""
                if isinstance(part, BUFFER_TYPES):
                    data = memoryview(part)[skip : skip + MAX_COPIED_BYTES]
                else:
                    data = scratch[: part.read_into(scratch[: length - skip], skip)]
                    if not data:
                        raise OSError(errno.EIO, SHORT_FILE)
                try:
                    count = os.write(self._duplicate, data)
                except (BlockingIOError, InterruptedError):
                    count = 0
                sent += count
                if count < len(data):
                    return sent, bytes(data[count : count + REFILL_BYTES])
                skip += count
            skip = 0
        return sent, b""


class ReadJob(SendJob):
    """A job that only reads, for a wire whose bytes all go through its transport."""

    __slots__ = ()

    def __init__(self, parts: list[Part], skip: int) -> None:
        """Read from byte `skip` of the first part, as much as a transport may hold."""
        super().__init__(-1, parts, skip, MAX_COPIED_BYTES)

    def begin(self) -> None:
        """See `SendJob`. No descriptor is needed."""
        self.runs = True

    def run(self, scratch: memoryview) -> Outcome:
        """See `SendJob`."""
        part, skip = self.parts[0], self._skip
        if isinstance(part, BUFFER_TYPES):
            return 0, bytes(memoryview(part)[skip : skip + self._limit])
        count = part.read_into(scratch[: min(part.length - skip, self._limit)], skip)
        if not count:
            raise OSError(errno.EIO, SHORT_FILE)
        return 0, bytes(scratch[:count])


def copy_pieces(pieces: list[Buffer], skip: int, limit: int) -> bytes:
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


class Senders:
    """The jobs of the connections of one loop."""

    __slots__ = ("_pool", "_running", "_scratches", "_waiting")

    def __init__(self, pool: BlockingPool) -> None:
        self._pool = pool
        self._running = 0
        self._scratches: list[memoryview] = []
        """Free buffers. Reused, since the first touch of fresh pages costs more than the copying."""
        self._waiting: deque[tuple[SendJob, Done]] = deque()

    def submit(self, job: SendJob, done: Done) -> None:
        """Run the job after those before it, then `done(outcome, error)` on the loop."""
        if self._running >= MAX_JOBS:
            self._waiting.append((job, done))
        else:
            self._start(job, done)

    def _start(self, job: SendJob, done: Done) -> None:
        def finished(outcome: Outcome | None, error: BaseException | None) -> None:
            self._running -= 1
            self._scratches.append(scratch)
            self._start_next()
            done(outcome, error)

        scratch = self._scratches.pop() if self._scratches else memoryview(bytearray(READ_BYTES))
        job.begin()
        self._running += 1
        self._pool.submit(partial(job.run, scratch), finished)

    def _start_next(self) -> None:
        while self._waiting and self._running < MAX_JOBS:
            job, done = self._waiting.popleft()
            if job.cancelled:
                continue
            try:
                self._start(job, done)
            except OSError as error:
                done(None, error)
