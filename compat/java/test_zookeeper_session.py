"""A kazoo session on a real ZooKeeper: calls, watches, lost responses, and sessions that end.

A relay between client and server drops responses and closes connections on command.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from zookeeper_tree import ZooKeeper

from ottla.app.pool import ThreadPool
from ottla.client.zookeeper.zookeeper_session import KazooSession
from ottla.protocol.znodes.operations import Check, Create, Delete, Operation, SetData, Znode
from ottla.protocol.znodes.session import Code, ZooKeeperError

WITHIN_S = 60
TIMEOUT_MS = 60_000
"""Nothing here waits for a session to time out."""


class Relay:
    """A port that relays connections to the server until `cut`; while `closed` it accepts none."""

    def __init__(self, server: str) -> None:
        host, _, port = server.partition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self.closed = False
        self.loses_answers = False
        self._run(self._accept)

    @staticmethod
    def _run(work: Callable[..., None], *args: Any) -> None:
        threading.Thread(target=work, args=args, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.closed:
                client.close()
                continue
            server = socket.create_connection(self._server)
            self._sockets += [client, server]
            self._run(self._pass, client, server, False)
            self._run(self._pass, server, client, True)

    def _pass(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        try:
            while data := source.recv(65536):
                if not (answers and self.loses_answers):
                    target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            end(each)

    def cut(self) -> None:
        """Close all connections."""
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            end(each)

    def close(self) -> None:
        end(self._listener)
        self._listener.close()
        self.cut()


def end(connection: socket.socket) -> None:
    """Shut down both sides of a connection; idempotent."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Listener:
    """Records the events of a session in order, with the calls that ended."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_connected(self, session: int) -> None:
        self.events.append(session)

    def on_disconnected(self) -> None:
        self.events.append("disconnected")

    def on_expired(self) -> None:
        self.events.append("expired")


class Calls:
    """The session's calls as coroutines."""

    def __init__(self, session: KazooSession) -> None:
        self.session = session

    @staticmethod
    async def _answer(call: Callable[[Callable[[Any, ZooKeeperError | None], None]], None]) -> Any:
        future = asyncio.get_running_loop().create_future()

        def done(answer: Any, error: ZooKeeperError | None) -> None:
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)

        call(done)
        assert not future.done(), "a call is answered after it returned"
        return await asyncio.wait_for(future, WITHIN_S)

    async def get(self, path: str, watch: Callable[[], None] | None = None) -> Znode | None:
        return await self._answer(lambda done: self.session.get(path, done, watch))

    async def children(self, path: str, watch: Callable[[], None] | None = None) -> list[str] | None:
        return await self._answer(lambda done: self.session.children(path, done, watch))

    async def multi(self, *operations: Operation) -> list[str]:
        return await self._answer(lambda done: self.session.multi(operations, done))

    async def fails(self, *operations: Operation) -> tuple[Code, int]:
        try:
            await self.multi(*operations)
        except ZooKeeperError as error:
            return error.code, error.position
        raise AssertionError("it did not fail")


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0.01)


async def calls_and_watches(calls: Calls, owner: int) -> None:
    assert await calls.get("/a") is None
    assert await calls.children("/a") is None
    assert await calls.multi(Create("/a", b"1"), Create("/a/n_", b"", sequential=True)) == ["/a", "/a/n_0000000000"]
    node = await calls.get("/a")
    assert node[:2] == (b"1", 0)
    assert node.created == node.modified
    assert await calls.multi(SetData("/a", b"2", 0), Check("/a", 1)) == ["", ""]
    node = await calls.get("/a")
    assert node[:2] == (b"2", 1)
    assert node.modified > node.created
    assert await calls.fails(SetData("/a", b"3"), Create("/b", b""), Check("/a", 1)) == (Code.BAD_VERSION, 2)
    assert await calls.fails(Create("/a", b"")) == (Code.NODE_EXISTS, 0)
    assert await calls.fails(Delete("/a")) == (Code.NOT_EMPTY, 0)
    assert await calls.fails(Delete("/x")) == (Code.NO_NODE, 0)
    assert (await calls.get("/a")).data == b"2"
    assert await calls.get("/b") is None
    fired: list[str] = []
    assert await calls.get("/b", lambda: fired.append("/b")) is None
    assert await calls.children("/a", lambda: fired.append("below /a")) == ["n_0000000000"]
    await calls.multi(Create("/b", b"", ephemeral=True), Create("/a/m", b""))
    await until(lambda: sorted(fired) == ["/b", "below /a"])
    assert (await calls.get("/b")).owner == owner
    await calls.multi(Delete("/b"), Delete("/a/m"))


async def an_answer_is_lost(calls: Calls, relay: Relay, other: KazooClient, listener: Listener) -> None:
    """The claim is created, but only the owner field of the znode shows it."""
    (owner,) = listener.events
    relay.loses_answers = True
    answered: list[Any] = []
    fired: list[bool] = []
    calls.session.multi([Create("/claim", b"", ephemeral=True)], lambda *answer: answered.append(answer))
    await until(lambda: other.exists("/claim"))
    assert not answered
    relay.closed = True
    relay.cut()
    await until(lambda: listener.events[1:] == ["disconnected"])
    assert [error.code for _, error in answered] == [Code.CONNECTION_LOSS]
    assert await calls.fails(Delete("/claim")) == (Code.CONNECTION_LOSS, 0)
    relay.closed = relay.loses_answers = False
    await until(lambda: len(listener.events) == 3)
    assert listener.events[2] == owner
    assert (await calls.get("/claim", lambda: fired.append(True))).owner == owner
    assert not fired
    assert len(answered) == 1


async def the_session_ends(calls: Calls, relay: Relay, other: KazooClient, server: str, listener: Listener) -> None:
    """Another connection takes over the session and closes it, so that the test need not wait for a timeout."""
    relay.closed = True
    relay.cut()
    await until(lambda: listener.events[3:] == ["disconnected"])
    client = calls.session._client
    thief = KazooClient(server, client_id=(client._session_id, client._session_passwd))
    await asyncio.to_thread(thief.start, WITHIN_S)
    await asyncio.to_thread(thief.stop)
    thief.close()
    assert not other.exists("/claim")
    relay.closed = False
    await until(lambda: len(listener.events) == 6)
    assert listener.events[4] == "expired"
    assert listener.events[5] not in (listener.events[0], 0)
    assert await calls.multi(Create("/claim", b"", ephemeral=True)) == ["/claim"]
    assert (await calls.get("/claim")).owner == listener.events[5]


async def talk(server: str) -> None:
    loop = asyncio.get_running_loop()
    relay, pool, listener = Relay(server), ThreadPool(loop), Listener()
    other = KazooClient(server)
    session = KazooSession(relay.address, TIMEOUT_MS, post=loop.call_soon_threadsafe, pool=pool)
    calls = Calls(session)
    try:
        await asyncio.to_thread(other.start, WITHIN_S)
        session.start(listener)
        await until(lambda: listener.events)
        await calls_and_watches(calls, listener.events[0])
        await an_answer_is_lost(calls, relay, other, listener)
        await the_session_ends(calls, relay, other, server, listener)
        before = list(listener.events)
    finally:
        closed: list[bool] = []
        session.close(lambda: closed.append(True))
        await until(lambda: closed)
        gone = not other.exists("/claim")
        other.stop()
        other.close()
        relay.close()
        pool.close()
    assert gone, "a closed session ends immediately"
    assert listener.events == before


def test_session_on_a_real_server(zookeeper_classpath: str) -> None:
    with ZooKeeper(zookeeper_classpath) as server:
        asyncio.run(talk(server.address))
