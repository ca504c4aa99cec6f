"""One client connection: frames in, responses out, in order.

All connections of the loop read into a shared buffer. A frame that is complete there is served from it; only an
incomplete frame, or one that must wait, is copied into a buffer of the connection's own. The rest of a large frame is
read into that own buffer. A small one moves back to the front of the shared buffer for the next read, so that the
reads of a busy connection stay large.

Invariants:
- A connection with more input than one frame shares `TICK_S` of a tick with all others that have, and queues behind
  them for the rest (`FairQueue`). A connection that filled a read does so as well. It reads and serves in its turn of
  the queue, while the transport does not read, until nothing is left. Other clients therefore wait for a few
  milliseconds, however many connections send without pause, and however expensive their requests are.
- One request is in progress at a time. Frames behind it wait, unparsed, and reading pauses while any frame waits. A
  connection therefore holds at most one socket read beyond the frame that it collects, and responses leave in order.
- No request is served while output waits: a client that doesn't read its responses is not served.
- The own buffer grows with the bytes that arrived, not with the length that a peer announced.
- `Dispatcher.connection_closed` is called exactly once, from `connection_lost`, not from inside `handle` or `respond`.
- The state (`ottla.net.connection_state`) decides which operations are allowed.
- A connection with a gate passes no request to the dispatcher before the gate opens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from ottla.common.errors import InvariantError, ProtocolError
from ottla.common.kafka.acl import ANONYMOUS
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.channel import Gate, Part
from ottla.common.platform.clock import TimerHandle
from ottla.common.platform.endpoint import ListenerInfo
from ottla.net.connection_set import RECEIVE_BYTES, ConnectionSet
from ottla.net.connection_state import (
    ANSWER,
    BEGIN,
    CLOSE,
    CLOSED,
    CLOSING,
    CONNECT,
    DRAINING,
    END,
    END_INPUT,
    FAIL,
    FINISH,
    FREE,
    HALF_CLOSED,
    HELD,
    HOLD,
    LOSE,
    MUTE,
    OVER,
    PARK,
    PARKED,
    QUIESCE,
    READ,
    READING,
    RESTING,
    SENDS_LATER,
    UNMUTE,
    ConnectionState,
)
from ottla.net.outbound import Outbound, release_parts
from ottla.net.sender import BUFFER_TYPES
from ottla.net.wire import ClientConnection, Wire
from ottla.protocol.framing import SIZE, SIZE_BYTES, frame_length

logger = logging.getLogger(__name__)

LARGE_FRAME_BYTES = RECEIVE_BYTES // 2
"""Once this much of an incomplete frame has arrived, the rest is read into the own buffer."""
INITIAL_OWN_BYTES = 256 * 1024
"""Initial size of the own buffer for larger frames; it doubles as bytes arrive."""
MAX_RETAINED_BYTES = 2 * 1024 * 1024
"""A larger own buffer is freed as soon as it is empty."""
COALESCED_BYTES = 256 * 1024
"""Responses of one read are sent together up to this size."""
MAX_READ_BYTES = 1024 * 1024
"""One read of the rest of a large frame."""
MAX_REQUESTS_PER_TICK = 32
"""Responses after which other connections are served even if the tick has time left: bounds the held responses."""
HALF_CLOSED_GRACE_S = 30.0
"""Time limit of a parked request whose peer has shut down its sending side."""
CLOSING_GRACE_S = 30.0
"""Time limit for a peer to read the output that was sent before the close."""


class Connection(ClientConnection):
    """One client connection. Implements `ottla.common.platform.channel.Channel`."""

    __slots__ = (
        "_early_response",
        "_gate",
        "_has_asked",
        "_more",
        "_muted_until",
        "_own",
        "_own_end",
        "_own_start",
        "_own_view",
        "_owner",
        "_prefix",
        "_reading_own",
        "_room",
        "_transport",
        "_unmuting",
        "_wire",
        "client_host",
        "client_software",
        "id",
        "idle_sweeps",
        "listener",
        "outbound",
        "principal",
        "state",
    )

    def __init__(
        self,
        owner: ConnectionSet,
        listener: ListenerInfo,
        client_host: str,
        wire: Wire,
        gate: Gate | None = None,
    ) -> None:
        """Own `wire` exclusively; `gate` filters requests before the dispatcher until it is open."""
        self._owner = owner
        self._wire = wire
        self.id = owner.next_id()
        self.listener = listener
        self.client_host = client_host
        self.client_software: tuple[str, str] | None = None
        self.principal = ANONYMOUS
        self._gate = gate
        self.state = ConnectionState()
        self.idle_sweeps = 0
        self.outbound: Outbound | None = None
        self._transport: asyncio.Transport | None = None
        self._early_response: list[Part] | None = None
        self._own: bytearray | None = None
        self._own_view: memoryview | None = None
        self._own_start = 0
        self._own_end = 0
        self._reading_own = False
        self._prefix = 0
        self._room = 0
        """Bytes that the current read may deliver."""
        self._has_asked = False
        self._unmuting: TimerHandle | None = None
        """Timer that ends the mute."""
        self._muted_until = 0.0
        """End of the mute by the loop's clock; 0 if not muted, or muted for one tick only."""
        self._more: Callable[[], float] | None = None
        """Returns the additional seconds to stay muted when the mute ends."""

    @property
    def made(self) -> bool:
        """Whether a transport was created; if so, `connection_lost` will be called."""
        return self._transport is not None

    @property
    def closed(self) -> bool:
        """Whether requests and responses are ignored, see `Channel`."""
        return self.state.phase in OVER

    def __repr__(self) -> str:
        return f"connection {self.id} of {self.client_host}"

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is ready."""
        owner = self._owner
        self.state.phase = CONNECT[self.state.phase]
        self._transport = cast(asyncio.Transport, transport)
        self._wire.use(self._transport)
        self.outbound = Outbound(
            self._transport,
            self._wire,
            self.state,
            owner.scratch,
            owner.senders,
            owner.fair_queue,
            owner.metrics.bytes_out,
            self._output_idle,
            self.abort,
        )
        owner.add(self)

    def identified(self, principal: str) -> None:
        """See `ConnectionHandler`, for TLS, and `IdentifiedChannel`, for SASL, which overrides TLS."""
        self.principal = principal

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport has ended, for any reason."""
        self.state.phase = LOSE[self.state.phase]
        self._stop_muting()
        self._drop_own()
        if self.outbound is not None:
            self.outbound.abandon()
            self.outbound = None  # it refers to this connection: such a cycle would stay until a garbage collection
        if exc is not None:
            logger.debug("%r lost: %s", self, exc)
        self._owner.remove(self)
        self._owner.dispatcher.connection_closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next read; the loop reads before it calls any other connection."""
        own = self._own
        shared = self._owner.receive_view
        if own is None:
            self._reading_own = False
            self._prefix = 0
            self._room = RECEIVE_BYTES
            return shared
        view = cast(memoryview, self._own_view)
        have = self._own_end - self._own_start
        if have == 0:
            self._own_start = self._own_end = 0
        frame = self._frame_bytes(own, self._own_start, self._own_end)
        if min(frame, have) < LARGE_FRAME_BYTES and len(own) < RECEIVE_BYTES:
            shared[:have] = view[self._own_start : self._own_end]
            self._reading_own = False
            self._prefix = have
            self._room = RECEIVE_BYTES - have
            return shared[have:]
        self._reading_own = True
        if self._own_start + frame > len(own) or self._own_end == len(own):
            view = self._make_room(view, have, frame)
        end = self._own_end
        # Not the whole capacity: many small frames in one read would delay the other connections.
        room = view[end : end + min(max(frame - have, RECEIVE_BYTES), MAX_READ_BYTES)]
        self._room = len(room)
        return room

    def buffer_updated(self, nbytes: int) -> None:
        """The loop has read `nbytes` into the buffer that `get_buffer` returned."""
        owner = self._owner
        owner.metrics.bytes_in.value += nbytes
        state = self.state
        serves = state.may_serve()
        if not serves and state.phase in OVER:
            return  # output still leaves; input that arrives meanwhile is dropped
        self.idle_sweeps = 0
        served = 0
        if self._reading_own:
            self._own_end += nbytes
            if serves:
                served = self._serve_own()
        else:
            end = self._prefix + nbytes
            if self._own is not None:
                self._drop_own()
            if serves:
                buffer = owner.receive_buffer
                if self._gate is None and is_one_frame(buffer, end, owner.limits.socket_request_max_bytes):
                    self._serve_one(buffer, end)
                    return
                served = self._serve(buffer, 0, end)
            if served < end:
                self._keep(served, end)
        if nbytes == self._room and (served or self._reading_own) and state.may_serve():
            self._go_behind_others()  # libuv would read 32 times in a row
        elif self._own_end > self._own_start and not state.may_serve():
            self._hold()

    def eof_received(self) -> bool:
        """The peer sends no more. Its earlier requests are still answered if the wire can; True keeps it open."""
        if not self._wire.half_closes:
            return False
        state = self.state
        state.phase = END_INPUT[state.phase]
        if state.phase is HALF_CLOSED and state.may_serve():
            # An incomplete frame will never be completed.
            self.close("end of input")
        elif state.request is PARKED and state.phase not in OVER:
            self._owner.loop.call_later(HALF_CLOSED_GRACE_S, self._end_half_closed)
        return state.phase is not CLOSED

    def pause_writing(self) -> None:
        """The transport holds bytes that the socket didn't take."""
        if self.outbound is not None:
            self.outbound.transport_full()

    def resume_writing(self) -> None:
        """The transport is empty."""
        self.idle_sweeps = 0
        if self.outbound is not None:
            # Deferred: asyncio ends a transport twice when it is closed from inside this call.
            self._owner.fair_queue.add(self.outbound.transport_empty)

    # Called by the dispatcher.

    def respond(self, parts: list[Part]) -> None:
        """Complete the parked request. Raises InvariantError when none is parked."""
        state = self.state
        if state.request in SENDS_LATER:
            # Called before `handle` has returned None: sent after it returns, behind the earlier responses.
            state.request = ANSWER[state.request]
            self._early_response = parts
            return
        if state.phase in OVER or self.outbound is None:
            release_parts(parts)
            return
        state.request = ANSWER[state.request]
        self.idle_sweeps = 0
        if parts:
            self.outbound.send(parts)
        if state.phase is HELD or state.phase is HALF_CLOSED:
            # Deferred: this may be called from inside the request of another connection.
            self._go_behind_others()

    def close(self, reason: str) -> None:
        """Close once the pending output has left; idempotent. Waiting frames are not served."""
        state = self.state
        if state.phase in OVER:
            return
        self._begin_to_close()
        logger.debug("closing %r: %s", self, reason)
        if state.request not in SENDS_LATER:
            self._finish_close()

    def abort(self, reason: str) -> None:
        """Close at once and drop the queued output; idempotent."""
        self.state.phase = LOSE[self.state.phase]
        self._stop_muting()
        logger.debug("aborting %r: %s", self, reason)
        if self.outbound is not None:
            self.outbound.abandon()
        if self._transport is not None:
            self._transport.abort()

    def mute(self, duration_s: float, *, restart: bool = False, more: Callable[[], float] | None = None) -> None:
        """See `Channel`; no effect on a connection that serves no more requests."""
        until = self._owner.loop.time() + duration_s
        if self.state.phase not in MUTE or (not self._muted_until if restart else until <= self._muted_until):
            return
        self._mute(self._owner.loop.call_at(until, self._unmute))
        self._muted_until = until
        self._more = more

    # Called by the owner.

    def sweep(self) -> int:
        """Count a sweep without activity and free an unused buffer. Returns the number of such sweeps in a row.

        A connection with a parked request is not idle: the dispatcher bounds its duration. A muted connection is not
        idle either: it may not be active.
        """
        state = self.state
        if state.request is PARKED or state.phase in RESTING:
            self.idle_sweeps = 0
            return 0
        self.idle_sweeps += 1
        if self.idle_sweeps > 1 and self._own_end == self._own_start and state.phase is READING:
            self._drop_own()
        return self.idle_sweeps

    def quiesce(self) -> None:
        """Serve no further request; a parked one may still be answered."""
        self._stop_muting()
        self._stop_reading()
        self.state.phase = QUIESCE[self.state.phase]

    # Frames.

    def _serve(self, buffer: bytearray, start: int, end: int) -> int:
        """Serve the complete frames in `buffer[start:end]`, at least one, until the tick is used up.

        Returns the position of the first unserved byte.
        """
        outbound = cast(Outbound, self.outbound)
        state = self.state
        phase = state.phase
        state.request = BEGIN[state.request]
        limit = self._owner.limits.socket_request_max_bytes if self._gate is None else self._max_request_bytes()
        first = start
        responses: list[Part] = []
        waiting_bytes = 0
        fair_queue = self._owner.fair_queue
        fair_queue.begin()
        for count in range(MAX_REQUESTS_PER_TICK):
            if end - start < 4:
                break
            try:
                size = frame_length(buffer, start, limit)
            except ProtocolError as error:
                self._refuse(f"{error} ({size_setting(self._gate)})")
                break
            if end - start - 4 < size:
                break
            if count and fair_queue.is_over():
                self._go_behind_others()
                break
            frame_start = start + 4
            start = frame_start + size
            parts = self._handle(buffer, frame_start, start)
            if parts is None:
                break
            if state.phase is not phase:  # muted or closed: nothing behind this request is served now
                if state.phase in OVER:
                    release_parts(parts)
                else:
                    responses.extend(parts)
                break
            has_region = False
            for part in parts:
                if isinstance(part, BUFFER_TYPES):
                    waiting_bytes += len(part)
                else:
                    has_region = True
            responses.extend(parts)
            if has_region or waiting_bytes >= COALESCED_BYTES:
                outbound.send(responses)
                responses = []
                waiting_bytes = 0
                if state.output is not FREE:
                    break
        else:
            self._go_behind_others()
        if not self._has_asked and start > first:
            self._has_asked = True
            self._owner.asked(self)
        if responses:
            outbound.send(responses)
        state.request = END[state.request]
        if state.phase is not phase and state.phase in OVER:
            self._finish_close()
            return end
        return start

    def _serve_one(self, buffer: bytearray, end: int) -> None:
        """`_serve` for one frame with nothing behind it, which cannot reach the bounds of a tick."""
        outbound = self.outbound
        state = self.state
        phase = state.phase
        state.request = BEGIN[state.request]
        parts = self._handle(buffer, SIZE_BYTES, end)
        if not self._has_asked:
            self._has_asked = True
            self._owner.asked(self)
        over = state.phase is not phase and state.phase in OVER
        if parts and outbound is not None:
            if over:
                release_parts(parts)
            else:
                outbound.send(parts)
        state.request = END[state.request]
        if over:
            self._finish_close()

    def _handle(self, buffer: bytearray, start: int, end: int) -> list[Part] | None:
        """Pass one request to the dispatcher. None: it is parked or the connection closes, and no frame may follow."""
        try:
            gate = self._gate
            if gate is None:
                parts = self._owner.dispatcher.handle(self, buffer, start, end)
            else:
                parts = gate.handle(self, buffer, start, end)
                if gate.open:
                    self._gate = None
        except ProtocolError as error:
            self._failed()
            self._refuse(str(error))
            return None
        except InvariantError as error:
            self._failed()
            self.abort("the broker stops on a broken invariant")
            self._owner.fatal(error)
            return None
        except Exception:
            self._failed()
            logger.exception("%r: a request failed with an unexpected error", self, extra=RATE_LIMITED)
            self._refuse("internal error")
            return None
        if parts is None:
            self.state.request = PARK[self.state.request]
            parts, self._early_response = self._early_response, None
        return parts

    def _failed(self) -> None:
        self.state.request = FAIL[self.state.request]
        if self._early_response is not None:
            release_parts(self._early_response)
            self._early_response = None

    def _refuse(self, reason: str) -> None:
        """Close because of invalid input; the earlier responses still leave."""
        self._owner.metrics.protocol_errors.value += 1
        logger.warning("closing %r: %s", self, reason, extra=RATE_LIMITED)
        self._begin_to_close()

    def _begin_to_close(self) -> None:
        self.state.phase = CLOSE[self.state.phase]
        self._stop_muting()

    def _finish_close(self) -> None:
        """Close the transport once the output has left, or after a timeout for a peer that doesn't read. Idempotent."""
        state = self.state
        if state.phase is not CLOSING or self._transport is None:
            return
        if state.output is DRAINING:
            self._owner.loop.call_later(CLOSING_GRACE_S, self._end_closing)
        else:
            state.phase = FINISH[state.phase]
            self._transport.close()

    def _end_closing(self) -> None:
        if self.state.phase is CLOSING:
            self.abort("the peer did not read its responses before the close timeout")

    def _serve_own(self) -> int:
        """Serve the complete frames in the own buffer; returns their length."""
        own = self._own
        if own is None:
            return 0
        start = self._own_start
        self._own_start = self._serve(own, start, self._own_end)
        served = self._own_start - start
        if self._own_start == self._own_end:
            self._own_start = self._own_end = 0
            if not RECEIVE_BYTES <= len(own) <= MAX_RETAINED_BYTES:
                self._drop_own()
        return served

    # Waiting and resuming.

    def _hold(self) -> None:
        """Frames wait: pause reading until they are served."""
        state = self.state
        if state.phase is READING:
            self._stop_reading()
            state.phase = HOLD[state.phase]

    def _go_behind_others(self) -> None:
        self._mute(self._owner.fair_queue.add(self._take_turn))

    def _take_turn(self) -> None:
        """Serve waiting frames, or read and serve arrived ones; without any the transport reads again."""
        self._unmuting = None
        self.state.phase = UNMUTE[self.state.phase]
        self._resume(receives=True)

    def _mute(self, unmuting: TimerHandle) -> None:
        """Neither read nor serve until `unmuting` runs; it replaces the timer of an earlier mute."""
        state = self.state
        self._stop_muting()
        self._stop_reading()
        state.phase = MUTE[state.phase]
        self._unmuting = unmuting

    def _unmute(self) -> None:
        self._unmuting = None
        self._muted_until = 0.0
        more, self._more = self._more, None
        if more is not None and (left_s := more()) > 0:
            self.mute(left_s, more=more)
            return
        self.state.phase = UNMUTE[self.state.phase]
        self._resume()

    def _stop_muting(self) -> None:
        if self._unmuting is not None:
            self._unmuting.cancel()
            self._unmuting = None
            self._muted_until = 0.0

    def _stop_reading(self) -> None:
        transport = self._transport
        if self.state.phase is READING and transport is not None and not transport.is_closing():
            transport.pause_reading()

    def _output_idle(self) -> None:
        """All output has left the queue and the transport."""
        if self.state.phase is CLOSING:
            self._finish_close()
        else:
            self._resume()

    def _resume(self, *, receives: bool = False) -> None:
        """Serve the waiting frames, then resume reading, or close after the peer's end of input.

        With `receives` read once and serve before the transport resumes.
        """
        state = self.state
        if not state.may_serve():
            return
        served = self._serve_own()
        if not state.may_serve():
            return
        transport = self._transport
        # A closing transport has freed the descriptor, which may be that of another connection by now.
        if receives and state.phase is HELD and transport is not None and not transport.is_closing():
            if served and self._owner.fair_queue.is_over():
                self._go_behind_others()
                return
            if count := self._wire.receive(self.get_buffer(-1)):
                self.buffer_updated(count)
                if not state.may_serve():
                    return
        if state.phase is HALF_CLOSED:
            self.close("end of input")
        elif state.phase is HELD and transport is not None and not transport.is_closing():
            state.phase = READ[state.phase]
            transport.resume_reading()

    def _end_half_closed(self) -> None:
        if not self.closed and self.state.request is PARKED:
            self.abort("the peer has half-closed and its request is not answered")

    # The own buffer.

    def _keep(self, start: int, end: int) -> None:
        """Copy the unserved rest of the shared buffer; no own buffer exists yet."""
        have = end - start
        frame = self._frame_bytes(self._owner.receive_buffer, start, end)
        capacity = have
        if min(frame, have) >= LARGE_FRAME_BYTES:  # a length that was only announced allocates nothing (CVE-2022-34917)
            capacity = max(have, RECEIVE_BYTES, min(frame, INITIAL_OWN_BYTES))
        self._own = bytearray(capacity)
        self._own_view = memoryview(self._own)
        self._own_view[:have] = self._owner.receive_view[start:end]
        self._own_start = 0
        self._own_end = have

    def _make_room(self, view: memoryview, have: int, frame: int) -> memoryview:
        """Move the incomplete frame to the front, in a larger buffer if needed; returns the buffer's view.

        Allocates a new buffer, since the loop may still hold a view of the old one, which forbids resizing.
        """
        pending = view[self._own_start : self._own_end]
        capacity = max(RECEIVE_BYTES, min(frame, max(2 * have, INITIAL_OWN_BYTES)))
        if capacity > len(view):
            self._own = bytearray(capacity)
            view = self._own_view = memoryview(self._own)
        view[:have] = pending
        self._own_start = 0
        self._own_end = have
        return view

    def _drop_own(self) -> None:
        self._own = None
        self._own_view = None
        self._own_start = self._own_end = 0

    def _frame_bytes(self, buffer: bytearray, start: int, end: int) -> int:
        """Length of the first frame with its prefix, as far as it is known; within the limit."""
        if end - start < 4:
            return 4
        size: int = SIZE.unpack_from(buffer, start)[0]
        return 4 + max(0, min(size, self._max_request_bytes()))

    def _max_request_bytes(self) -> int:
        """Maximum size of the next request in bytes."""
        limit = None if self._gate is None else self._gate.max_request_bytes
        return self._owner.limits.socket_request_max_bytes if limit is None else limit


def size_setting(gate: Gate | None) -> str:
    """The setting that limits the size of a connection's next request."""
    gated = gate is not None and gate.max_request_bytes is not None
    return "sasl.server.max.receive.size" if gated else "socket.request.max.bytes"


def is_one_frame(buffer: bytearray, end: int, max_bytes: int) -> bool:
    """Return whether `buffer[:end]` is one valid frame, read with room left: an unpipelined request."""
    if not SIZE_BYTES <= end < RECEIVE_BYTES:
        return False
    size: int = SIZE.unpack_from(buffer)[0]
    return size == end - SIZE_BYTES and size <= max_bytes
