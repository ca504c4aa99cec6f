"""A simulated ZooKeeper for clients with threads: it lives on a loop of its own, in real time, and lists one broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar, cast

from simulation.loop import Process, SimLoop
from simulation.rng import SimRng
from simulation.zookeeper_session import Ensemble, SimSession

from ottla.common.platform.clock import BlockingPool
from ottla.common.platform.endpoint import Endpoint
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import BrokerRegistration, encode_broker
from ottla.protocol.znodes.operations import Create, Delete, Operation, SetData
from ottla.protocol.znodes.session import Done, SessionListener, Watch
from ottla.protocol.znodes.topics import Assignment, TopicAssignment, encode_topic

T = TypeVar("T")

BROKER_ID = 1


class SimulatedZooKeeper:
    """The server and its sessions. A context manager."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.sessions: list[SimSession] = []

    def __enter__(self) -> SimulatedZooKeeper:
        self._thread.start()
        self.ensemble: Ensemble = self.call(lambda: Ensemble(cast(SimLoop, self.loop)))
        self._session: int = self.call(lambda: self.ensemble.server.connect(1 << 60))
        self.write(paths.BROKER_IDS, b"")
        self.write(paths.BROKER_TOPICS, b"")
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def call(self, work: Callable[[], T]) -> T:
        """Its result, of the server's thread."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return done.result()

    def tree(self) -> dict[str, bytes]:
        """The data of each znode."""
        return self.call(lambda: {path: node.data for path, node in self.ensemble.server.tree().items()})

    def write(self, path: str, data: bytes) -> None:
        """Make a znode with all above it, or replace what lies there."""

        def run() -> None:
            server = self.ensemble.server
            missing = [each for each in (*paths.parents(path), path) if server.exists(self._session, each) is None]
            operations: list[Operation] = [Create(each, data if each == path else b"") for each in missing]
            server.multi(self._session, operations or [SetData(path, data)])
            self.ensemble.deliver()

        self.call(run)

    def remove(self, path: str) -> None:
        """A znode with nothing below it."""

        def run() -> None:
            self.ensemble.server.multi(self._session, [Delete(path)])
            self.ensemble.deliver()

        self.call(run)

    def register(self, bootstrap_servers: str) -> None:
        """The one broker."""
        host, _, port = bootstrap_servers.rpartition(":")
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", host, int(port))
        self.write(paths.broker(BROKER_ID), encode_broker(BrokerRegistration((endpoint,), None, {}, 0)))

    def set_topic(self, name: str, count: int) -> None:
        """So many partitions of it, on the one broker."""
        assigned = {number: Assignment((BROKER_ID,)) for number in range(count)}
        self.write(paths.topic(name), encode_topic(TopicAssignment(b"t" * 16, assigned)))

    def connect(
        self, _servers: str, timeout_ms: int, *, post: Callable[..., object], pool: BlockingPool, access: object
    ) -> Session:
        """Called like `session_below`."""
        return Session(self, timeout_ms, post)


class Session:
    """A session that passes calls and responses between two loops."""

    def __init__(self, zookeeper: SimulatedZooKeeper, timeout_ms: int, post: Callable[..., object]) -> None:
        self._zookeeper = zookeeper
        self._post = post
        self.trouble = ""
        rng = SimRng(len(zookeeper.sessions))
        self.simulated = SimSession(zookeeper.ensemble, cast(Process, _Process(zookeeper.loop)), rng, timeout_ms)
        zookeeper.sessions.append(self.simulated)

    def _ask(self, call: Callable[..., object], *args: object) -> None:
        self._zookeeper.loop.call_soon_threadsafe(call, *args)

    def _back(self, callback: Callable[..., object] | None) -> Callable[..., object] | None:
        return None if callback is None else partial(self._post, callback)

    def start(self, listener: SessionListener) -> None:
        self._ask(self.simulated.start, _Listener(self._post, listener))

    def get(self, path: str, done: Done[Any], watch: Watch | None = None) -> None:
        self._ask(self.simulated.get, path, self._back(done), self._back(watch))

    def children(self, path: str, done: Done[Any], watch: Watch | None = None) -> None:
        self._ask(self.simulated.children, path, self._back(done), self._back(watch))

    def multi(self, operations: Sequence[Operation], done: Done[Any]) -> None:
        self._ask(self.simulated.multi, operations, self._back(done))

    def close(self, done: Callable[[], None]) -> None:
        self._ask(self.simulated.close, self._back(done))


class _Listener:
    def __init__(self, post: Callable[..., object], listener: SessionListener) -> None:
        self.on_connected = partial(post, listener.on_connected)
        self.on_disconnected = partial(post, listener.on_disconnected)
        self.on_expired = partial(post, listener.on_expired)


class _Process:
    """The interface that a session needs from its process."""

    alive = True

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.call_later = loop.call_later
        self.call_soon = loop.call_soon
