"""The life of a connection: its states, what may happen in each, and what follows. All transitions are here.

Three things go on beside one another, so there are three small tables instead of one of the product:

- **Phase**, the input side and the life. It says whether the transport reads, and whether frames may be served.
- **Request**: at most one is in work.
- **Output**: whether bytes that were handed over still wait.

An event is a row of a table: the states in which it may come, and the state that follows each. `phase = MUTE[phase]` is
a transition; one that is not in the table is a defect of this program and raises InvariantError. What a peer or the
event loop can cause at any time is in its row for every state.

The tables meet in two rules: a frame is served only where all three allow it (`ConnectionState.may_serve`), and a
connection is held only while request or output are in the way.

Not here: timers, buffers, the transport; what output waits for (`ottla.net.outbound` knows).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn, TypeVar

from ottla.common.errors import InvariantError


class State:
    """A state is compared by identity; its name is for messages and tests."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


S = TypeVar("S", bound=State)


class Event(dict[S, S]):
    """A row: from each state in which the event may come to the one that follows. Any other: InvariantError."""

    __slots__ = ("name",)

    def __init__(self, name: str, transitions: Mapping[S, S]) -> None:
        super().__init__(transitions)
        self.name = name

    def __missing__(self, state: S) -> NoReturn:
        raise InvariantError(f"a connection was {state} when it came to: {self.name}")


# Phase.


class Phase(State):
    """The input side of a connection, and its life."""

    __slots__ = ()


CONNECTING: Final = Phase("connecting")
"""There is no transport yet."""
READING: Final = Phase("reading")
"""The transport reads, also while a request is parked, until something comes that must wait."""
HELD: Final = Phase("held")
"""Frames wait for the request before them, or for the output, so nothing is read."""
MUTED: Final = Phase("muted")
"""Until a time nothing is read and nothing is served: a throttled client, or one whose turn is over."""
HALF_CLOSED: Final = Phase("half-closed")
"""The peer's end of input has come while something is owed to it: what it asked for is still served."""
HALF_CLOSED_MUTED: Final = Phase("half-closed and muted")
QUIESCED: Final = Phase("quiesced")
"""The broker stops: nothing more is read or served, a parked request may still be answered."""
CLOSING: Final = Phase("closing")
"""What was sent before still leaves; what arrives is dropped."""
CLOSED: Final = Phase("closed")
"""The transport has ended, or was told to."""

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
"""Where nothing will be served any more there is nothing to mute."""
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
"""Comes once, and after `CONNECT`."""
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
"""The transport is gone, or is cut off."""

SERVING: Final = frozenset({READING, HELD, HALF_CLOSED})
"""Frames may be served here, as far as the phase is concerned."""
RESTING: Final = frozenset({MUTED, HALF_CLOSED_MUTED})
"""It ends by itself."""
OVER: Final = frozenset({CLOSING, CLOSED})
"""No request is served and no answer is sent any more."""


# Request.


class RequestState(State):
    """The request in work."""

    __slots__ = ()


IDLE: Final = RequestState("idle")
"""None is in work."""
HANDLING: Final = RequestState("handling")
"""One frame after another is handed to `Dispatcher.handle`, and the answers that it returned wait to be sent."""
ANSWERED: Final = RequestState("answered")
"""The request was answered from inside `Dispatcher.handle`, which has not returned yet."""
PARKED: Final = RequestState("parked")
"""`Dispatcher.handle` has left the answer for later."""

REQUEST_STATES: Final = (IDLE, HANDLING, ANSWERED, PARKED)

BEGIN: Final = Event("begin to serve", {IDLE: HANDLING})
ANSWER: Final = Event("answer", {HANDLING: ANSWERED, PARKED: IDLE})
"""`Channel.respond`; what comes for a connection that is over is let go, and is no event."""
PARK: Final = Event("park", {HANDLING: PARKED, ANSWERED: HANDLING})
"""`Dispatcher.handle` returned no answer."""
FAIL: Final = Event("fail", {HANDLING: HANDLING, ANSWERED: HANDLING})
"""`Dispatcher.handle` raised; the connection closes."""
END: Final = Event("end to serve", {HANDLING: IDLE, PARKED: PARKED})
"""The answers of this turn were sent."""

SENDS_LATER: Final = frozenset({HANDLING, ANSWERED})
"""There may be answers that were not sent yet, behind which an answer of now, and a close, must wait."""


# Output.


class OutputState(State):
    """The bytes on their way out."""

    __slots__ = ()


FREE: Final = OutputState("free")
"""Nothing waits: what is sent now goes to the socket at once."""
DRAINING: Final = OutputState("draining")
"""Something waits for room in the socket, for the disk, or for the next turn of the loop."""
ABANDONED: Final = OutputState("abandoned")
"""What waited was dropped, and nothing is taken any more."""

OUTPUT_STATES: Final = (FREE, DRAINING, ABANDONED)

BACK_UP: Final = Event("back up", {FREE: DRAINING, DRAINING: DRAINING})
DRAIN: Final = Event("drain", {DRAINING: FREE})
ABANDON: Final = Event("abandon", dict.fromkeys(OUTPUT_STATES, ABANDONED))


class ConnectionState:
    """Where one connection stands. Phase and request belong to `Connection`, the output to `Outbound`."""

    __slots__ = ("output", "phase", "request")

    def __init__(self) -> None:
        self.phase: Phase = CONNECTING
        self.request: RequestState = IDLE
        self.output: OutputState = FREE

    def may_serve(self) -> bool:
        """Whether the next frame may be handed to the dispatcher.

        Not while a request is in work, since answers leave in order, nor while output waits: who doesn't read its
        answers is not served.
        """
        return self.phase in SERVING and self.request is IDLE and self.output is FREE
