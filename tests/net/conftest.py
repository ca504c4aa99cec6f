"""A listener on loopback with a scripted dispatcher, on uvloop and on plain asyncio."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import pytest
import uvloop

from ottla.app.pool import ThreadPool
from ottla.common.errors import InvariantError, ProtocolError
from ottla.common.platform.channel import Channel, Part
from ottla.common.platform.endpoint import Endpoint
from ottla.metrics.registry import MetricsRegistry
from ottla.net import congestion
from ottla.net.connection_set import ConnectionLimits, ConnectionSet
from ottla.net.listener import Listener, bind_socket
from ottla.net.sender import MAX_JOBS
from ottla.net.tls import TlsHandshakeLimiter, TlsWire
from ottla.security.listener_tls import ListenerTls

TIMEOUT_S = 20
Client = socket.socket


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class MemoryRegion:
    """A region over bytes; the test sets whether it is cached."""

    by_reference = False

    def __init__(
        self,
        data: bytes,
        *,
        cold: bool = False,
        cold_every: int = 0,
        short: int = 0,
        gone: bool = False,
    ):
        self.data = data
        self.cold = cold
        self.cold_every = cold_every
        self.short = short
        self.gone = gone
        self.tries = 0
        self.cold_reads = 0
        self.released = 0

    @property
    def length(self) -> int:
        return len(self.data)

    def _copy(self, view: memoryview, start: int) -> int:
        assert self.released == 0, "read after release"
        count = min(len(view), len(self.data) - start)
        if self.short:
            count = min(count, self.short)
        view[:count] = self.data[start : start + count]
        return count

    def read_into(self, view: memoryview, start: int) -> int:
        self.cold_reads += 1
        return 0 if self.gone else self._copy(view, start)

    def try_read_into(self, view: memoryview, start: int) -> int:
        self.tries += 1
        if self.cold or (self.cold_every and self.tries % self.cold_every == 0):
            raise BlockingIOError
        return self._copy(view, start)

    def is_cold(self, start: int, length: int) -> bool:
        return self.cold

    def release(self) -> None:
        self.released += 1
        assert self.released == 1


class ScriptedDispatcher:
    """The first byte of a request selects its handling; the rest is the payload."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.parked: list[tuple[Channel, bytes]] = []
        self.closed: list[Channel] = []
        self.channels: list[Channel] = []
        self.answers: dict[bytes, Callable[[], list[Part]]] = {}

    def handle(self, channel: Channel, buffer: bytearray, start: int, end: int) -> list[Part] | None:
        request = bytes(buffer[start:end])
        buffer[start:end] = bytes(end - start)  # the lent range is overwritten, so a late use is detected
        self.requests.append(request)
        if channel not in self.channels:
            self.channels.append(channel)
        kind, payload = request[:1], request[1:]
        if kind == b"E":
            return [frame(payload)]
        if kind == b"N":
            return []
        if kind == b"P":
            self.parked.append((channel, payload))
            return None
        if kind == b"S":
            channel.respond([frame(payload)])
            return None
        if kind == b"A":
            return self.answers[payload]()
        if kind == b"C":
            channel.close("asked to")
            return []
        if kind == b"I":
            raise InvariantError("planted")
        if kind == b"U":
            raise ValueError("planted")
        raise ProtocolError("unknown request")

    def connection_closed(self, channel: Channel) -> None:
        self.closed.append(channel)

    def finish(self, index: int = 0) -> None:
        channel, payload = self.parked.pop(index)
        channel.respond([frame(payload)])


class Harness:
    """One listener, its dispatcher and raw client sockets, all on one loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: ConnectionLimits,
        tls: ListenerTls | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.loop = loop
        self.dispatcher = ScriptedDispatcher()
        self.pool = ThreadPool(loop, max_threads=MAX_JOBS + 1)
        self.fatal: list[BaseException] = []
        self.registry = MetricsRegistry()
        self.connections = ConnectionSet(loop, self.dispatcher, limits, self.pool, self.registry, self.fatal.append)
        listening = bind_socket(host, 0)
        self.address = listening.getsockname()
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", *self.address[:2])
        pacing = congestion.begin_unpaced(listening)
        self.room = TlsHandshakeLimiter(self.connections.scratch.view, self.connections.metrics.failed_authentications)
        make_wire = None if tls is None else partial(TlsWire, tls=tls, room=self.room)
        self.listener = Listener(listening, endpoint, self.connections, pacing=pacing, make_wire=make_wire)
        self.listener.start_accepting()
        self.clients: list[Client] = []

    async def connect(self, receive_buffer: int = 0) -> Client:
        client = self.socket()
        if receive_buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await self.loop.sock_connect(client, self.address)
        return client

    def socket(self) -> Client:
        """A client socket that the test connects."""
        client = socket.socket()
        client.setblocking(False)
        self.clients.append(client)
        return client

    async def send(self, client: Client, data: bytes) -> None:
        await self.loop.sock_sendall(client, data)

    async def receive(self, client: Client, count: int, step: int = 1 << 20) -> bytes:
        """`count` bytes, or fewer at the end of input."""
        data = bytearray()
        while len(data) < count:
            piece = await self.loop.sock_recv(client, min(step, count - len(data)))
            if not piece:
                break
            data += piece
        return bytes(data)

    async def response(self, client: Client) -> bytes:
        header = await self.receive(client, 4)
        assert len(header) == 4, "closed"
        return await self.receive(client, struct.unpack(">i", header)[0])

    async def at_end(self, client: Client) -> bool:
        """Wait for the broker's close."""
        try:
            return await self.loop.sock_recv(client, 1) == b""
        except ConnectionError:
            return True

    async def until(self, condition: Callable[[], object]) -> None:
        """Run the loop until `condition()` holds; the test's time limit bounds it."""
        while not condition():
            await asyncio.sleep(0.001)

    async def turn(self) -> None:
        """Let the loop run the ready callbacks."""
        await asyncio.sleep(0)

    async def only_connection(self) -> Any:
        """The broker's side of the only connection."""
        await self.until(lambda: self.connections.connections)
        (connection,) = self.connections.connections.values()
        return connection

    async def close(self) -> None:
        self.listener.close()
        for client in self.clients:
            client.close()
        await self.connections.close(5.0)
        self.pool.close()


Body = Callable[[Harness], Awaitable[None]]


class Network:
    """Runs a test's coroutine against a fresh harness."""

    def __init__(self, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.loop_factory = loop_factory

    def run(
        self,
        body: Body,
        limits: ConnectionLimits | None = None,
        tls: ListenerTls | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            failures: list[dict[str, Any]] = []
            loop.set_exception_handler(lambda _, context: failures.append(context))
            harness = Harness(loop, limits or ConnectionLimits(), tls, host)
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await body(harness)
            finally:
                await harness.close()
            assert not failures
            assert len(harness.dispatcher.closed) == len(set(harness.dispatcher.closed))
            assert not harness.connections.connections

        run_on(self.loop_factory, main())


def run_on(loop_factory: Callable[[], asyncio.AbstractEventLoop], main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main)


@pytest.fixture(params=["uvloop", "asyncio"])
def network(request: pytest.FixtureRequest) -> Network:
    return Network(uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop)


@pytest.fixture
def make_frame() -> Callable[[bytes], bytes]:
    return frame


@pytest.fixture
def memory_region() -> type[MemoryRegion]:
    return MemoryRegion
