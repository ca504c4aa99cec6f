"""State machine of a connection: states, allowed events and all transitions.

Three aspects change independently, so there are three small tables instead of one product table:

- **Phase**: the input side and the lifecycle. Decides whether the transport reads and whether frames may be served.
- **Request**: at most one is in progress.
- **Output**: whether sent bytes still wait.

An event is a row of a table: the states in which it may occur, and the next state of each. `phase = MUTE[phase]` is
a transition; one that is not in the table is a defect of this program and raises InvariantError. Events that a peer or
the event loop can cause at any time have an entry for every state.

Two rules combine the tables: a frame is served only where all three allow it (`ConnectionState.may_serve`), and a
connection is held only while its request or output blocks it.

Not here: timers, buffers, the transport, and the reason why output waits (`ottla.net.outbound`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn, TypeVar

from ottla.common.errors import InvariantError


class State:
    """A state, compared by identity; its name is for messages and tests."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


S = TypeVar("S", bound=State)


class Event(dict[S, S]):
    """A row: maps each state in which the event may occur to the next state. Any other raises InvariantError."""

    __slots__ = ("name",)

    def __init__(self, name: str, transitions: Mapping[S, S]) -> None:
        super().__init__(transitions)
        self.name = name

    def __missing__(self, state: S) -> NoReturn:
        raise InvariantError(f"invalid connection event in state {state}: {self.name}")


# Phase.


class Phase(State):
    """The input side and the lifecycle of a connection."""

    __slots__ = ()


CONNECTING: Final = Phase("connecting")
"""The transport does not exist yet."""
READING: Final = Phase("reading")
"""The transport reads, also while a request is parked, until a frame must wait."""
HELD: Final = Phase("held")
"""Frames wait for the request before them, or for the output, so reading is paused."""
MUTED: Final = Phase("muted")
"""Nothing is read or served until a deadline: a throttled client, or one that has used its tick."""
HALF_CLOSED: Final = Phase("half-closed")
"""The peer's end of input has arrived while responses are outstanding: its earlier requests are still served."""
HALF_CLOSED_MUTED: Final = Phase("half-closed and muted")
QUIESCED: Final = Phase("quiesced")
"""The broker stops: nothing more is read or served, a parked request may still be answered."""
CLOSING: Final = Phase("closing")
"""Pending output still leaves; input is dropped."""
CLOSED: Final = Phase("closed")
"""The transport has ended or is being closed."""

PHASES: Final = (
    CONNECTING,
    READING,
    HELD,
    MUTED,
    HALF_CLOSED,
    HALF_CLOSED_MUTED,
    QUIESCED,
    CLOSING,
    CLOSED,
)

CONNECT: Final = Event("connect", {CONNECTING: READING})
HOLD: Final = Event("hold", {READING: HELD})
READ: Final = Event("read again", {HELD: READING})
MUTE: Final = Event(
    "mute",
    {
        READING: MUTED,
        HELD: MUTED,
        MUTED: MUTED,
        HALF_CLOSED: HALF_CLOSED_MUTED,
        HALF_CLOSED_MUTED: HALF_CLOSED_MUTED,
    },
)
"""No effect in states that serve no more requests."""
UNMUTE: Final = Event("unmute", {MUTED: HELD, HALF_CLOSED_MUTED: HALF_CLOSED})
END_INPUT: Final = Event(
    "end of input",
    {
        READING: HALF_CLOSED,
        HELD: HALF_CLOSED,
        MUTED: HALF_CLOSED_MUTED,
        QUIESCED: QUIESCED,
        CLOSING: CLOSING,
        CLOSED: CLOSED,
    },
)
"""Occurs once, after `CONNECT`."""
QUIESCE: Final = Event(
    "quiesce",
    {
        READING: QUIESCED,
        HELD: QUIESCED,
        MUTED: QUIESCED,
        HALF_CLOSED: QUIESCED,
        HALF_CLOSED_MUTED: QUIESCED,
        QUIESCED: QUIESCED,
        CLOSING: CLOSING,
        CLOSED: CLOSED,
    },
)
CLOSE: Final = Event(
    "close",
    {
        READING: CLOSING,
        HELD: CLOSING,
        MUTED: CLOSING,
        HALF_CLOSED: CLOSING,
        HALF_CLOSED_MUTED: CLOSING,
        QUIESCED: CLOSING,
        CLOSING: CLOSING,
        CLOSED: CLOSED,
    },
)
FINISH: Final = Event("finish", {CLOSING: CLOSED})
"""The output of a closing connection has left."""
LOSE: Final = Event("lose", dict.fromkeys(PHASES, CLOSED))
"""The transport has ended or is aborted."""

SERVING: Final = frozenset({READING, HELD, HALF_CLOSED})
"""Frames may be served, as far as the phase is concerned."""
RESTING: Final = frozenset({MUTED, HALF_CLOSED_MUTED})
"""States that end on their own."""
OVER: Final = frozenset({CLOSING, CLOSED})
"""Requests are not served and responses not sent."""


# Request.


class RequestState(State):
    """The request in progress."""

    __slots__ = ()


IDLE: Final = RequestState("idle")
"""No request is in progress."""
HANDLING: Final = RequestState("handling")
"""Frames are passed to `Dispatcher.handle` one by one, and the responses that it returned wait to be sent."""
ANSWERED: Final = RequestState("answered")
"""The request was answered from inside `Dispatcher.handle`, which has not returned yet."""
PARKED: Final = RequestState("parked")
"""`Dispatcher.handle` has deferred the response."""

REQUEST_STATES: Final = (IDLE, HANDLING, ANSWERED, PARKED)

BEGIN: Final = Event("begin to serve", {IDLE: HANDLING})
ANSWER: Final = Event("answer", {HANDLING: ANSWERED, PARKED: IDLE})
"""`Channel.respond`; a response for a closed connection is dropped, and is not an event."""
PARK: Final = Event("park", {HANDLING: PARKED, ANSWERED: HANDLING})
"""`Dispatcher.handle` returned no response."""
FAIL: Final = Event("fail", {HANDLING: HANDLING, ANSWERED: HANDLING})
"""`Dispatcher.handle` raised; the connection closes."""
END: Final = Event("end to serve", {HANDLING: IDLE, PARKED: PARKED})
"""The responses of this tick were sent."""

SENDS_LATER: Final = frozenset({HANDLING, ANSWERED})
"""Unsent responses may exist; a new response or a close must wait behind them."""


# Output.


class OutputState(State):
    """The output side."""

    __slots__ = ()


FREE: Final = OutputState("free")
"""The queue is empty: output goes to the socket at once."""
DRAINING: Final = OutputState("draining")
"""Output waits for room in the socket, for the disk, or for the next tick."""
ABANDONED: Final = OutputState("abandoned")
"""The waiting output was dropped, and no more is accepted."""

OUTPUT_STATES: Final = (FREE, DRAINING, ABANDONED)

BACK_UP: Final = Event("back up", {FREE: DRAINING, DRAINING: DRAINING})
DRAIN: Final = Event("drain", {DRAINING: FREE})
ABANDON: Final = Event("abandon", dict.fromkeys(OUTPUT_STATES, ABANDONED))


class ConnectionState:
    """State of one connection. Phase and request belong to `Connection`, the output to `Outbound`."""

    __slots__ = ("output", "phase", "request")

    def __init__(self) -> None:
        self.phase: Phase = CONNECTING
        self.request: RequestState = IDLE
        self.output: OutputState = FREE

    def may_serve(self) -> bool:
        """Whether the next frame may be passed to the dispatcher.

        Not while a request is in progress, since responses leave in order. Not while output waits: a client that
        doesn't read its responses is not served.
        """
        return self.phase in SERVING and self.request is IDLE and self.output is FREE
