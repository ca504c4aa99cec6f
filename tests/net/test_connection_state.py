"""Tables of the connection states, and a connection driven through random events."""

from __future__ import annotations

import heapq
import itertools
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scale import size

from ottla.common.errors import InvariantError, ProtocolError
from ottla.common.platform.endpoint import ListenerInfo
from ottla.metrics.registry import MetricsRegistry
from ottla.net import connection_state as states
from ottla.net.connection import CLOSING_GRACE_S, Connection
from ottla.net.connection_set import ConnectionLimits, ConnectionSet
from ottla.net.connection_state import (
    CLOSED,
    FREE,
    HALF_CLOSED,
    HELD,
    IDLE,
    MUTED,
    OUTPUT_STATES,
    OVER,
    PHASES,
    QUIESCED,
    READING,
    REQUEST_STATES,
    RESTING,
    SERVING,
)

TABLES = (PHASES, REQUEST_STATES, OUTPUT_STATES)
EVENTS = [value for value in vars(states).values() if isinstance(value, states.Event)]

REFUSED = """
connect: reading, held, muted, half-closed, half-closed and muted, quiesced, closing, closed
hold: connecting, held, muted, half-closed, half-closed and muted, quiesced, closing, closed
read again: connecting, reading, muted, half-closed, half-closed and muted, quiesced, closing, closed
mute: connecting, quiesced, closing, closed
unmute: connecting, reading, held, half-closed, quiesced, closing, closed
end of input: connecting, half-closed, half-closed and muted
quiesce: connecting
close: connecting
finish: connecting, reading, held, muted, half-closed, half-closed and muted, quiesced, closed
lose:
begin to serve: handling, answered, parked
answer: idle, answered
park: idle, parked
fail: idle, parked
end to serve: idle, answered
back up: abandoned
drain: free, abandoned
abandon:
"""


def states_of(event: states.Event) -> tuple[states.State, ...]:
    """All states of the table that contains the event."""
    (table,) = [table for table in TABLES if all(state in table for state in event)]
    return table


def reachable(start: states.State) -> set[states.State]:
    """All states reachable from a state."""
    found = {start}
    while more := {event[state] for event in EVENTS for state in found if state in event} - found:
        found |= more
    return found


def test_every_state_has_every_event_or_refuses_it():
    lines = []
    for event in EVENTS:
        refused = []
        for state in states_of(event):
            if state in event:
                assert event[state] in states_of(event)
            else:
                with pytest.raises(InvariantError, match=f"invalid connection event in state {state}: {event.name}"):
                    event[state]
                refused.append(state.name)
        lines.append(f"{event.name}: {', '.join(refused)}".rstrip())
    assert lines == REFUSED.strip().splitlines()


def test_state_names_are_unique_and_states_reachable():
    for table in TABLES:
        assert len({state.name for state in table}) == len(table)
        assert reachable(table[0]) == set(table)


def test_every_state_can_reach_an_end_and_ends_are_final():
    for phase in PHASES:
        assert CLOSED in reachable(phase)
    assert reachable(CLOSED) == {CLOSED}
    assert not reachable(QUIESCED) & (SERVING | RESTING)
    assert READING not in reachable(HALF_CLOSED)
    assert reachable(states.ABANDONED) == {states.ABANDONED}


def test_frame_is_served_only_if_all_three_states_allow_it():
    state = states.ConnectionState()
    allowed = []
    for phase, request, output in itertools.product(*TABLES):
        state.phase, state.request, state.output = phase, request, output
        if state.may_serve():
            allowed.append((phase, request, output))
    assert allowed == [(READING, IDLE, FREE), (HELD, IDLE, FREE), (HALF_CLOSED, IDLE, FREE)]


class Turns:
    """A loop with turns and time controlled by the test."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.ready: list[Call] = []
        self.timers: list[tuple[float, int, Call]] = []
        self.ids = itertools.count()

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback, *args):
        self.ready.append(Call(callback, args))
        return self.ready[-1]

    def call_at(self, when_s, callback, *args):
        call = Call(callback, args)
        heapq.heappush(self.timers, (when_s, next(self.ids), call))
        return call

    def call_later(self, delay_s, callback, *args):
        return self.call_at(self.now_s + delay_s, callback, *args)

    def turn(self) -> None:
        ready, self.ready = self.ready, []
        while self.timers and self.timers[0][0] <= self.now_s:
            ready.append(heapq.heappop(self.timers)[2])
        for call in ready:
            if not call.cancelled:
                call.callback(*call.args)


class Call:
    """A handle of it."""

    def __init__(self, callback, args) -> None:
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Pipe:
    """A wire and its transport: a socket scripted by the test."""

    descriptor = -1
    half_closes = True

    def __init__(self, loop: Turns) -> None:
        self.loop = loop
        self.protocol: Connection
        self.room = 0
        self.sent = bytearray()
        self.held = bytearray()
        self.arriving = bytearray()
        self.reads = True
        self.ended = False
        self.end_was_reported = False
        self.closing = False

    # Called as the wire.

    def use(self, transport) -> None:
        assert transport is self

    def write_pieces(self, pieces) -> int:
        assert not self.closing
        assert not self.held
        data = b"".join(pieces)[: self.room]
        self.room -= len(data)
        self.sent += data
        return len(data)

    def receive(self, view) -> int:
        assert not self.reads
        assert not self.closing
        got = min(len(view), len(self.arriving))
        view[:got] = self.arriving[:got]
        del self.arriving[:got]
        return got

    # Called as the transport.

    def write(self, data: bytes) -> None:
        self.held += data
        self.protocol.pause_writing()

    def pause_reading(self) -> None:
        assert self.reads
        assert not self.closing
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads
        assert not self.closing
        self.reads = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self.loop.call_soon(self.protocol.connection_lost, None)

    abort = close

    # Actions of the peer.

    def take(self, count: int) -> None:
        """The peer reads that many bytes."""
        self.room += count
        if self.held and not self.closing:
            taken = self.held[: self.room]
            self.room -= len(taken)
            self.sent += taken
            del self.held[: len(taken)]
            if not self.held:
                self.protocol.resume_writing()

    def bring(self, count: int) -> None:
        """The loop reports the socket readable, and reads until reading is paused."""
        while self.reads and not self.closing and self.arriving and count > 0:
            buffer = self.protocol.get_buffer(-1)
            got = min(len(buffer), len(self.arriving), count)
            assert got
            buffer[:got] = self.arriving[:got]
            del self.arriving[:got]
            count -= got
            self.protocol.buffer_updated(got)
        if self.ended and not self.arriving and self.reads and not self.closing and not self.end_was_reported:
            self.end_was_reported = True
            if not self.protocol.eof_received():
                self.close()


class Peer:
    """A connection with its peer and dispatcher; checks the invariants after each step."""

    def __init__(self) -> None:
        self.loop = cast("Any", Turns())
        self.pipe = cast("Any", Pipe(self.loop))
        limits = ConnectionLimits(socket_request_max_bytes=1000, connections_max_idle_ms=-1)
        self.fatal: list[BaseException] = []
        no_pool: Any = None
        self.owner = ConnectionSet(
            self.loop, self, limits, no_pool, MetricsRegistry(), self.fatal.append, self.loop.time
        )
        self.owner.admit("127.0.0.1")
        self.connection = Connection(self.owner, ListenerInfo("PLAINTEXT", "PLAINTEXT"), "127.0.0.1", self.pipe)
        self.pipe.protocol = self.connection
        self.asked = 0
        self.rounds = 0
        self.served: list[int] = []
        self.answers: list[bytes] = []
        self.parked: list[bytes] = []
        self.muted_until_s = 0.0
        self.quiesced = False
        self.lost = 0
        self.connection.connection_made(self.pipe)

    @property
    def state(self) -> states.ConnectionState:
        return self.connection.state

    # Actions of the dispatcher: one letter, then a number for the order.

    def handle(self, channel, buffer, start, end):
        request = bytes(buffer[start:end])
        assert self.state.phase in SERVING
        assert self.loop.now_s >= self.muted_until_s
        assert not self.parked
        assert not self.quiesced
        self.served.append(int(request[1:9]))
        answer = len(request).to_bytes(4, "big") + request
        kind = request[:1]
        if kind == b"?":
            raise ProtocolError("planted")
        if kind == b"M":
            self.mute(0.5)
        if kind == b"C":
            channel.close("asked to")
            return [answer]
        self.answers.append(answer)
        if kind == b"P":
            self.parked.append(answer)
            return None
        if kind == b"S":
            channel.respond([answer])
            return None
        return [answer]

    def connection_closed(self, channel) -> None:
        assert channel is self.connection
        self.lost += 1

    def mute(self, duration_s: float) -> None:
        self.connection.mute(duration_s)
        self.muted_until_s = max(self.muted_until_s, self.loop.now_s + duration_s)

    # Steps.

    def ask(self, kinds: bytes, size: int, arrives: int) -> None:
        if not self.pipe.ended:
            for kind in kinds:
                payload = bytes([kind]) + b"%08d" % self.asked + bytes(size)
                self.asked += 1
                self.pipe.arriving += len(payload).to_bytes(4, "big") + payload
            self.pipe.bring(arrives)

    def answer(self) -> None:
        if self.parked:
            self.connection.respond([self.parked.pop()])

    def wait(self, duration_s: float) -> None:
        self.loop.now_s += duration_s

    def end(self) -> None:
        self.pipe.ended = True

    def quiesce(self) -> None:
        self.quiesced = True
        self.connection.quiesce()

    def check(self) -> None:
        state = self.state
        if not self.pipe.closing and state.phase is not CLOSED:
            if state.phase is READING:
                assert self.pipe.reads
            if state.phase in (HELD, MUTED, QUIESCED):
                assert not self.pipe.reads
        if state.phase is HELD:
            assert (state.request, state.output) != (IDLE, FREE), "no event would resume it"
        assert (state.phase in RESTING) == (self.connection._unmuting is not None)
        assert self.served == list(range(len(self.served))), "each once, in order"
        assert b"".join(self.answers).startswith(bytes(self.pipe.sent)), "answers in order, none twice"
        assert not self.fatal
        assert self.lost <= 1

    def run_until(self, phase: states.Phase) -> None:
        """Let the peer read, time pass and parked requests be answered until the phase is reached."""
        while self.answered < self.asked or self.state.phase is not phase:
            self.rounds += 1
            assert self.rounds < 10_000, "it hangs"
            self.pipe.take(1 << 20)
            self.pipe.bring(1 << 20)
            self.answer()
            self.wait(0.5)
            self.loop.turn()
            self.check()

    @property
    def answered(self) -> int:
        return len(self.answers) if self.pipe.sent == b"".join(self.answers) else -1


KINDS = st.text("EEEEEENPSM", min_size=1, max_size=40).map(str.encode)
PEACEFUL = [
    st.tuples(st.just("ask"), KINDS, st.sampled_from([0, 10, 700]), st.integers(0, 5000)),
    st.tuples(st.just("ask"), KINDS, st.just(0), st.integers(0, 5000)),
    st.tuples(st.just("bring"), st.integers(1, 3000)),
    st.tuples(st.just("take"), st.integers(1, 5000)),
    st.tuples(st.just("take"), st.integers(1, 200)),
    st.tuples(st.just("answer")),
    st.tuples(st.just("turn")),
    st.tuples(st.just("turn")),
    st.tuples(st.just("wait"), st.sampled_from([0.01, 0.6, 40.0])),
    st.tuples(st.just("mute"), st.sampled_from([0.1, 1.0])),
    st.tuples(st.just("sweep")),
]
DEADLY = [
    st.tuples(st.just("ask"), st.sampled_from([b"?", b"E?", b"C", b"EC", b"SC"]), st.just(0), st.just(100)),
    st.tuples(st.just("end")),
    st.tuples(st.just("quiesce")),
    st.tuples(st.just("close"), st.just("a test")),
    st.tuples(st.just("abort"), st.just("a test")),
]
LIFE = st.lists(st.one_of(PEACEFUL), min_size=5, max_size=40)
END = st.lists(st.one_of(PEACEFUL + DEADLY), max_size=20)


def play(steps) -> Peer:
    peer = Peer()
    places = {"bring": peer.pipe, "take": peer.pipe, "turn": peer.loop}
    places |= dict.fromkeys(("sweep", "close", "abort"), peer.connection)
    for name, *args in steps:
        getattr(places.get(name, peer), name)(*args)
        peer.check()
    return peer


@settings(max_examples=size(30, 300), deadline=None)
@given(LIFE, END)
def test_random_events_keep_the_invariants_and_close_ends(life, end):
    peer = play(life + end)
    peer.connection.close("the end of the test")
    assert peer.state.phase in OVER
    served = len(peer.served)
    peer.wait(CLOSING_GRACE_S)
    peer.loop.turn()
    peer.loop.turn()
    assert peer.state.phase is CLOSED
    peer.loop.turn()
    assert peer.lost == 1
    assert len(peer.served) == served


@pytest.mark.promise("S9")
@settings(max_examples=size(20, 200), deadline=None)
@given(LIFE, st.sampled_from([b"", b"E", b"EPMSN" * 20]))
def test_every_request_is_answered_once_and_in_order(life, last):
    peer = play(life)
    peer.run_until(READING)
    peer.ask(last, 5, 500)
    peer.end()  # its earlier requests are still answered
    peer.run_until(CLOSED)
    assert len(peer.served) == peer.asked
    peer.loop.turn()
    assert peer.lost == 1
