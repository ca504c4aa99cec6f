"""Output side of one connection: sends its responses.

Bytes go straight to the wire with one `writev` as long as nothing waits. When the wire takes only a part, the rest is
copied, at most `MAX_COPIED_BYTES`, into the transport. Later parts stay in the queue until the transport is empty
(`transport_empty`). Large regions of committed records leave by sendfile (`Wire.send_region`; TLS reads and encrypts
them instead), in one packet with the few bytes before them. Others are read into a scratch buffer that all connections
share. Regions that are not in the page cache are sent by a job: a call in the thread pool that reads them and, without
TLS, sends them (`net.sender.SendJob`). Large regions share the time of a tick with all other long work (`FairQueue`).

By sendfile a socket holds the pages of the file instead of a copy, so unsent bytes change when the file is truncated
and rewritten. Committed records are truncated only by an unclean election, which already loses records for consumers,
and mixed bytes fail the CRC of their batch. Records above the high watermark, which followers fetch and elections
regularly truncate, are copied. A deleted file's pages stay with the sockets that reference them.

Invariants:
- The scratch buffer goes only to an immediate non-blocking write, never to `transport.write`: the transport keeps a
  reference, and the next user of the scratch would change the bytes under it.
- The wire is written only while the transport is empty and no job runs, so that bytes never overtake each other,
  and never after `abandon`.
- Every region is released exactly once: when its last byte was sent, or by `abandon`; the regions of a running job are
  released when it returns.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from itertools import islice

from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.channel import Part
from ottla.common.platform.disk import Buffer
from ottla.common.platform.shares import FairQueue
from ottla.metrics.registry import Counter
from ottla.net.connection_state import ABANDON, ABANDONED, BACK_UP, DRAIN, DRAINING, FREE, ConnectionState
from ottla.net.sender import BUFFER_TYPES, MAX_COPIED_BYTES, Outcome, Senders, SendJob, copy_pieces
from ottla.net.wire import Wire

logger = logging.getLogger(__name__)

SCRATCH_BYTES = 1024 * 1024
"""Maximum read of small regions that is sent in one call; a smaller one was not faster."""
LARGE_REGION_BYTES = 64 * 1024
"""From this size on a region may leave by reference, after a check whether it is cold. A smaller one is read without
the check, which costs few disk reads."""
MAX_BYTES_PER_TICK = 1024 * 1024
"""Bytes in one turn of the fair queue."""
MAX_BYTES_PER_JOB = 4 * 1024 * 1024
"""Bytes after which the other connections are served by the pool."""
WAITING_BYTES = 4096
"""Copied after a region sent by reference when the socket is full: the transport waits for room; more costs more."""
MAX_PIECES = 512
"""Buffers in one writev; below the system's limit of 1024."""


class Scratch:
    """The buffer that the connections of one loop share for reading regions."""

    __slots__ = ("view",)

    def __init__(self, size: int = SCRATCH_BYTES) -> None:
        self.view = memoryview(bytearray(size))


def release_parts(parts: list[Part]) -> None:
    """Release the regions of a response that will not be sent."""
    for part in parts:
        if not isinstance(part, BUFFER_TYPES):
            part.release()


def _is_long(parts: list[Part]) -> bool:
    return any(not isinstance(part, BUFFER_TYPES) and part.length >= LARGE_REGION_BYTES for part in parts)


class Outbound:
    """The output side of one connection, driven by it. Updates `state.output`.

    `on_idle` is called when the last byte has been sent after a wait (never from inside `send`), `on_failure`
    with a reason when the connection fails.
    """

    __slots__ = (
        "_bytes_out",
        "_descriptor",
        "_fair_queue",
        "_job",
        "_offset",
        "_on_failure",
        "_on_idle",
        "_queue",
        "_scratch",
        "_senders",
        "_state",
        "_transport",
        "_transport_full",
        "_wire",
    )

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        wire: Wire,
        state: ConnectionState,
        scratch: Scratch,
        senders: Senders,
        fair_queue: FairQueue,
        bytes_out: Counter,
        on_idle: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self._transport = transport
        self._wire = wire
        self._descriptor = wire.descriptor
        self._state = state
        self._scratch = scratch
        self._senders = senders
        self._fair_queue = fair_queue
        self._bytes_out = bytes_out
        self._on_idle = on_idle
        self._on_failure = on_failure
        self._queue: deque[Part] = deque()
        self._offset = 0
        """Bytes of the first part in the queue that were already sent."""
        self._transport_full = False
        self._job: SendJob | None = None
        """The job that sends, or will send, the head of the queue."""

    def send(self, parts: list[Part]) -> None:
        """Send one or more responses in order. Takes ownership of the regions in every case."""
        output = self._state.output
        if output is FREE:
            if self._descriptor >= 0:
                if len(parts) == 1:
                    if isinstance(part := parts[0], BUFFER_TYPES) and self._write_one(part):
                        return
                elif len(parts) == 3 and self._write_small(parts):
                    return
            self._queue.extend(parts)
            fair_queue = self._fair_queue
            fair_queue.begin()
            if fair_queue.is_over() and _is_long(parts):
                self._state.output = BACK_UP[output]
                fair_queue.add(self._continue)
            else:
                self._pump()
        elif output is DRAINING:
            self._queue.extend(parts)
        else:
            release_parts(parts)

    def _write_one(self, part: bytes | bytearray | memoryview) -> bool:
        """Write a response without regions. Returns False if a rest, from `_offset` on, still has to be sent."""
        try:
            count = os.write(self._descriptor, part)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._fail(error)
            return True
        self._bytes_out.value += count
        if count == len(part):
            return True
        self._offset = count
        return False

    def _write_small(self, parts: list[Part]) -> bool:
        """Write a response with a small region between two buffers by one read and one write.

        Returns False if nothing was written: the region is large or not cached, or the socket is full.
        """
        head, region, tail = parts
        if (
            isinstance(region, BUFFER_TYPES)
            or region.length >= LARGE_REGION_BYTES
            or not isinstance(head, BUFFER_TYPES)
            or not isinstance(tail, BUFFER_TYPES)
        ):
            return False
        view = self._scratch.view
        start = len(head)
        end = start + region.length
        total = end + len(tail)
        if total > len(view):
            return False
        try:
            if region.try_read_into(view[start:end], 0) != region.length:
                return False
        except OSError:
            return False  # the usual way ends in the same error
        view[:start] = head
        view[end:total] = tail
        try:
            count = os.write(self._descriptor, view[:total])
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._queue.extend(parts)
            self._fail(error)
            return True
        if count == total:
            self._bytes_out.value += count
            region.release()
            return True
        self._queue.extend(parts)
        self._advance(count)
        self._pump()
        return True

    def transport_full(self) -> None:
        """The transport holds bytes (`pause_writing`)."""
        self._transport_full = True

    def transport_empty(self) -> None:
        """The transport has sent all it held (`resume_writing`)."""
        self._transport_full = False
        self._continue()

    def abandon(self) -> None:
        """The connection has ended: drop the queue, release the regions, never touch the wire again. Idempotent."""
        self._state.output = ABANDON[self._state.output]
        parts, self._queue = list(self._queue), deque()
        self._offset = 0
        if self._job is not None:
            if self._job.runs:
                parts = parts[len(self._job.parts) :]  # the others are released when the job returns
            else:
                self._job.cancelled = True
                self._job = None
        release_parts(parts)

    @property
    def busy(self) -> bool:
        """Whether output waits; for tests and diagnosis, like `queued_parts`."""
        return self._state.output is DRAINING

    @property
    def queued_parts(self) -> int:
        """Number of waiting parts."""
        return len(self._queue)

    def _continue(self) -> None:
        """Continue after a wait, and notify the owner once the queue is empty."""
        if self._state.output is not DRAINING or self._job is not None or self._transport_full:
            return
        if self._pump():
            self._on_idle()

    def _pump(self) -> bool:
        """Write until the queue is empty or must wait; returns whether it is empty."""
        state = self._state
        wire = self._wire
        budget = MAX_BYTES_PER_TICK
        while self._queue:
            if budget <= 0:
                self._fair_queue.add(self._continue)
                break
            try:
                pieces, total, region_next = self._gather()
                sent = 0
                if pieces:
                    sent = wire.write_before_region(pieces) if region_next else wire.write_pieces(pieces)
                    self._advance(sent)
                    if sent < total:
                        self._hand_to_transport(pieces, sent)
                        region_next = False
                if region_next:
                    by_reference = self._send_cached()
                    if by_reference < 0:
                        self._submit_job()
                        break
                    sent += by_reference
                budget -= sent
                if self._transport_full:
                    break
            except OSError as error:
                self._fail(error)
                return False
        if state.output is ABANDONED:
            return False
        if self._queue or self._transport_full:
            state.output = BACK_UP[state.output]
            return False
        if state.output is DRAINING:
            state.output = DRAIN[state.output]
        return True

    def _gather(self) -> tuple[list[Buffer], int, bool]:
        """The writable buffers at the head of the queue, their length, and whether a blocked region follows.

        Such a region is cold or may leave by reference. Pops parts of length zero, so that an empty result means
        progress too.
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
                want = min(left, room - used)
                if left >= LARGE_REGION_BYTES and (part.by_reference or part.is_cold(skip, want)):
                    return pieces, total, True
                try:
                    count = part.try_read_into(scratch[used : used + want], skip) if left else 0
                except BlockingIOError:
                    count = 0
                if count == 0 and left:
                    return pieces, total, True
                if count:
                    pieces.append(scratch[used : used + count])
                used += count
                total += count
                if count < left or used == room:
                    break
            skip = 0
            if len(pieces) >= MAX_PIECES or total >= MAX_BYTES_PER_TICK:
                break
        return pieces, total, False

    def _send_cached(self) -> int:
        """Send from the region at the head by reference; returns the bytes sent, or -1 when a job has to read it.

        Raises OSError.
        """
        part, start = self._queue[0], self._offset
        if isinstance(part, BUFFER_TYPES) or not part.by_reference:
            return -1
        want = min(part.length - start, MAX_BYTES_PER_TICK)
        if part.is_cold(start, want):
            return -1
        scratch = self._scratch.view
        try:
            # Pages that readahead has not filled yet count as cached; it fills the last page last.
            part.try_read_into(scratch[:1], start + want - 1)
        except BlockingIOError:
            return -1
        try:
            sent = self._wire.send_region(part, start, want)
            self._advance(sent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent < want:
            try:
                count = part.try_read_into(scratch[: min(want - sent, WAITING_BYTES)], start + sent)
            except BlockingIOError:
                return sent or -1
            self._hand_to_transport([scratch[:count]], 0)
        return sent

    def _hand_to_transport(self, pieces: list[Buffer], written: int) -> None:
        """The socket is full: copy the following bytes, up to the bound, so that the transport waits for room."""
        rest = copy_pieces(pieces, written, MAX_COPIED_BYTES)
        self._advance(len(rest))
        self._transport.write(rest)

    def _advance(self, count: int) -> None:
        """Take `count` bytes off the queue, releasing the completed regions."""
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

    def _submit_job(self) -> None:
        """Submit the region at the head and those behind it, most likely cold too, to a pool thread. Raises OSError."""
        parts: list[Part] = []
        skip = self._offset
        total = -skip
        for part in islice(self._queue, MAX_PIECES):
            parts.append(part)
            total += len(part) if isinstance(part, BUFFER_TYPES) else part.length
            if total >= MAX_BYTES_PER_JOB:
                break
        self._job = self._wire.job(parts, skip, MAX_BYTES_PER_JOB)
        self._senders.submit(self._job, self._job_done)

    def _job_done(self, outcome: Outcome | None, error: BaseException | None) -> None:
        job, self._job = self._job, None
        if self._state.output is ABANDONED:
            if job is not None:
                release_parts(job.parts)
            return
        if outcome is None:
            self._fail(error if isinstance(error, OSError) else OSError(str(error)))
            return
        sent, rest = outcome
        self._advance(sent)
        if rest:
            # The buffer has no writer any more, so the transport may keep it.
            self._transport.write(rest)
            self._advance(len(rest))
        self._continue()

    def _fail(self, error: OSError) -> None:
        reason = f"{type(error).__name__}: {error.strerror or error}"
        if not isinstance(error, ConnectionError):
            # Not the peer's fault: the disk, or the network of this machine.
            logger.warning("closing a connection: %s", reason, extra=RATE_LIMITED)
        self._on_failure(reason)
