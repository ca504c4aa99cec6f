"""Sessions on the simulated ZooKeeper, on the loop and with a network that loses responses.

`Ensemble` is the server: it advances its time, so that silent sessions expire, and delivers watch events. `SimSession`
is `ottla.protocol.znodes.session.ZooKeeperSession`: a call takes time both ways, a cut connection loses responses and
some calls, and a paused or killed process sends no pings.

Watch events are delivered independently, as from the real client: before or after the responses of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from ottla.protocol.znodes.operations import Operation, Znode
from ottla.protocol.znodes.session import Code, Done, EventType, SessionListener, Watch, ZooKeeperError
from simulation.loop import Process, SimLoop
from simulation.rng import SimRng
from simulation.zookeeper import SimZooKeeper

T = TypeVar("T")

TICK_S = 0.05
DELAY_S = (0.0002, 0.004)
"""Limits of the delay of a call or a response."""
RECONNECT_S = (0.01, 0.5)
LATE_CHANCE = 0.5
"""Probability that a call of a cut connection still reaches the server."""

_CHILDREN = frozenset({EventType.CHILDREN_CHANGED, EventType.DELETED})


class Ensemble:
    """The server, and its connected sessions."""

    def __init__(self, loop: SimLoop) -> None:
        self.server = SimZooKeeper()
        self._loop = loop
        self.connected: dict[int, SimSession] = {}
        self._tick()

    def _tick(self) -> None:
        """Advance the time; expired sessions learn it by their next call or ping."""
        self.server.advance(int(self._loop.time() * 1000))
        self.deliver()
        self._loop.call_later(TICK_S, self._tick)

    def now(self) -> float:
        """Virtual seconds."""
        return self._loop.time()

    def arrive(self, delay_s: float, call: Callable[[], None]) -> None:
        """A request reaches the server, even if its sender is dead."""
        self._loop.call_later(delay_s, call)

    def deliver(self) -> None:
        """Deliver events to connected sessions."""
        for session_id, session in list(self.connected.items()):
            for event in self.server.events(session_id):
                if event.type is not EventType.EXPIRED:
                    session.on_event(event.type, event.path)


class SimSession:
    """The sessions of one process, one after the other."""

    def __init__(self, ensemble: Ensemble, process: Process, rng: SimRng, timeout_ms: int) -> None:
        self._ensemble = ensemble
        self._server = ensemble.server
        self._process = process
        self._rng = rng
        self._timeout_ms = timeout_ms
        self._listener: SessionListener | None = None
        self._session = 0
        self._connection = 0
        """Incremented when a connection is opened or lost; odd while there is one."""
        self._waiting: dict[int, Callable[[ZooKeeperError], None]] = {}
        self._calls = 0
        self._watches: dict[tuple[str, bool], list[Watch]] = {}
        self._closed = False
        self._answered_s = 0.0
        self._asked_s = 0.0

    # -- connections -----------------------------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """See `ZooKeeperSession`."""
        return ""

    def start(self, listener: SessionListener) -> None:
        """See `ZooKeeperSession`."""
        self._listener = listener
        self._process.call_later(self._rng.uniform(*RECONNECT_S), self._connect)

    def cut(self, away_s: float = 0.0) -> None:
        """The connection is lost, and can't be restored for this long; does nothing without one."""
        if self._connection % 2 and self._process.alive:
            self._disconnected()
            self._process.call_later(away_s + self._rng.uniform(*RECONNECT_S), self._connect)

    def expire(self) -> None:
        """The server expires the session, as after a silence; the process does not know."""
        if self._session:
            self._server.expire(self._session)
            self._ensemble.deliver()

    @property
    def session(self) -> int:
        """The current session, or the last one."""
        return self._session

    def _connect(self) -> None:
        listener = self._listener
        if listener is None or self._closed:
            return
        try:
            if self._session:
                self._server.ping(self._session)
        except ZooKeeperError:
            self._session = 0
            listener.on_expired()
        if not self._session:
            self._session = self._server.connect(self._timeout_ms)
        self._connection += 1
        self._ensemble.connected[self._session] = self
        self._process.call_later(self._timeout_ms / 3000, self._ping, self._connection)
        listener.on_connected(self._session)

    def _ping(self, connection: int) -> None:
        if connection != self._connection:
            return
        try:
            self._server.ping(self._session)
        except ZooKeeperError:
            self.cut()
            return
        self._process.call_later(self._timeout_ms / 3000, self._ping, connection)

    def _disconnected(self) -> None:
        self._connection += 1
        self._ensemble.connected.pop(self._session, None)
        self._watches.clear()
        waiting, self._waiting = self._waiting, {}
        for fail in waiting.values():
            fail(ZooKeeperError(Code.CONNECTION_LOSS, ""))
        if self._listener is not None:
            self._listener.on_disconnected()

    def close(self, done: Callable[[], None]) -> None:
        """See `ZooKeeperSession`."""
        self._closed = True
        self._listener = None
        if self._connection % 2:
            with suppress(ZooKeeperError):
                self._server.close(self._session)
            self._disconnected()
            self._ensemble.deliver()
        self._process.call_soon(done)

    # -- calls -----------------------------------------------------------------------------------------------------

    def get(self, path: str, done: Done[Znode], watch: Watch | None = None) -> None:
        """See `ZooKeeperSession`."""

        def read(session: int) -> Znode | None:
            stat = self._server.exists(session, path, watch=watch is not None)
            if stat is None:
                return None
            data, stat = self._server.get(session, path)
            return Znode(data, stat.version, stat.czxid, stat.ephemeral_owner, stat.mzxid)

        self._call(read, done, (path, False), watch)

    def children(self, path: str, done: Done[list[str]], watch: Watch | None = None) -> None:
        """See `ZooKeeperSession`."""

        def read(session: int) -> list[str] | None:
            if self._server.exists(session, path) is None:
                return None
            return self._server.children(session, path, watch=watch is not None)

        self._call(read, done, (path, True), watch)

    def multi(self, operations: Sequence[Operation], done: Done[list[str]]) -> None:
        """See `ZooKeeperSession`."""
        self._call(lambda session: self._server.multi(session, operations), done, ("", False), None)

    def _call(
        self, call: Callable[[int], T | None], done: Done[T], watched: tuple[str, bool], watch: Watch | None
    ) -> None:
        if self._connection % 2 == 0:
            self._process.call_soon(done, None, ZooKeeperError(Code.CONNECTION_LOSS, watched[0]))
            return
        connection, session = self._connection, self._session
        number = self._calls = self._calls + 1
        self._waiting[number] = lambda error: done(None, error)

        def arrive() -> None:
            if connection != self._connection and not self._rng.chance(LATE_CHANCE):
                return
            answer: T | None = None
            error: ZooKeeperError | None = None
            try:
                answer = call(session)
            except ZooKeeperError as failure:
                error = failure
            is_set = error is None and (answer is not None or not watched[1])
            if watch is not None and connection == self._connection and is_set:
                self._watches.setdefault(watched, []).append(watch)
            self._ensemble.deliver()
            self._answered_s = max(self._answered_s, self._now() + self._rng.uniform(*DELAY_S))
            self._process.call_later(self._answered_s - self._now(), answered, answer, error)

        def answered(answer: T | None, error: ZooKeeperError | None) -> None:
            if number not in self._waiting:
                return
            if error is not None and error.code is Code.SESSION_EXPIRED:
                self.cut()
                return
            del self._waiting[number]
            done(answer, error)

        self._asked_s = max(self._asked_s, self._now() + self._rng.uniform(*DELAY_S))
        self._ensemble.arrive(self._asked_s - self._now(), arrive)

    def on_event(self, kind: EventType, path: str) -> None:
        """A watch of this connection fired."""
        keys = [(path, False)] if kind is not EventType.CHILDREN_CHANGED else []
        if kind in _CHILDREN:
            keys.append((path, True))
        connection = self._connection
        for key in keys:
            for watch in self._watches.pop(key, ()):
                self._process.call_later(self._rng.uniform(*DELAY_S), self._fire, connection, watch)

    def _fire(self, connection: int, watch: Watch) -> None:
        if connection == self._connection:
            watch()

    def _now(self) -> float:
        return self._ensemble.now()
