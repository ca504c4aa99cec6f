"""A whole broker in this process, with a channel in memory where a socket would be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ottla.app.clock import SystemClock, SystemRng
from ottla.app.disk import RealDisk
from ottla.app.pool import ThreadPool
from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import ProtocolError
from ottla.common.kafka.acl import ANONYMOUS
from ottla.common.platform.channel import Part
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.runtime import NodeRuntime
from ottla.metrics.registry import MetricsRegistry
from ottla.net.outbound import release_parts
from ottla.net.sender import BUFFER_TYPES
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.registry import ApiKey
from ottla.server.broker import Broker

LISTENER = Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)


class MemoryChannel:
    """A client connection without a socket; `answers` contains the responses, one item per request."""

    def __init__(self, channel_id: int) -> None:
        self.id = channel_id
        self.client_host = "127.0.0.1"
        self.listener = LISTENER.listener
        self.principal = ANONYMOUS
        self.closed = False
        self.parked = False
        self.answers: list[bytes] = []

    def respond(self, parts: list[Part]) -> None:
        """Finish the parked request."""
        if not self.parked and not self.closed:
            raise AssertionError("answered without a parked request")
        self.parked = False
        self.take(parts)

    def mute(self, duration_s: float, *, restart: bool = False, more: Callable[[], float] | None = None) -> None:
        """Does nothing: no client has limits."""

    def close(self, reason: str) -> None:
        """Idempotent."""
        self.closed = True

    def take(self, parts: list[Part]) -> None:
        """Copy a response out and give its regions back, as a socket would."""
        self.answers.append(b"".join(_contents(part) for part in parts))
        release_parts(parts)


def _contents(part: Part) -> bytes:
    if isinstance(part, BUFFER_TYPES):
        return bytes(part)
    copy = bytearray(part.length)
    position = 0
    with memoryview(copy) as view:
        while position < part.length:
            position += part.read_into(view[position:], position)
    return bytes(copy)


class MemoryBroker:
    """Requests in, answers out; every defect of the broker is counted in `defects`."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._next_id = 0
        self._correlation_id = 0

    @property
    def defects(self) -> int:
        """Unexpected exceptions so far."""
        return self.broker.parts.failures.count

    def channel(self) -> MemoryChannel:
        """A new connection."""
        self._next_id += 1
        return MemoryChannel(self._next_id)

    def hang_up(self, channel: MemoryChannel) -> None:
        """The peer goes away."""
        channel.closed = True
        self.broker.dispatcher.connection_closed(channel)

    def send(self, channel: MemoryChannel, request: bytes) -> None:
        """One request without its size prefix; a refusal closes the channel, as the connection does."""
        # Other bytes around it: a reader that leaves the frame would see them.
        buffer = bytearray(b"\x55" * 64 + request + b"\x55" * 64)
        channel.parked = True  # an answer may come before `handle` returns
        try:
            parts = self.broker.dispatcher.handle(channel, buffer, 64, 64 + len(request))
        except ProtocolError:
            self.hang_up(channel)
            return
        if parts is not None:
            channel.parked = False
            channel.take(parts)

    async def ask(self, api_key: ApiKey, version: int, message: object) -> Any:
        """A valid request and its decoded answer."""
        self._correlation_id += 1
        channel = self.channel()
        frame = encode_request(api_key, version, self._correlation_id, "test", message)
        self.send(channel, frame[4:])
        async with asyncio.timeout(30):
            while not channel.answers and not channel.closed:
                await asyncio.sleep(0.001)
        if not channel.answers:
            raise AssertionError(f"{api_key.name} v{version} was not answered")
        correlation_id, response = decode_response(api_key, version, channel.answers[0][4:])
        if correlation_id != self._correlation_id:
            raise AssertionError(f"answer {correlation_id} to request {self._correlation_id}")
        return response


@asynccontextmanager
async def memory_broker(data_dir: Path, **settings: object) -> AsyncIterator[MemoryBroker]:
    """A broker on `data_dir` in the running loop, started and stopped."""
    properties = {name.replace("_", "."): str(value) for name, value in settings.items()}
    config, _ = BrokerConfig.parse({"log.dirs": str(data_dir), **properties})
    loop = asyncio.get_running_loop()
    pool = ThreadPool(loop)
    broker = Broker(config, NodeRuntime(RealDisk(), SystemClock(), SystemRng(), loop, pool), MetricsRegistry())
    await broker.start([LISTENER])
    try:
        yield MemoryBroker(broker)
    finally:
        await broker.stop()
        pool.close()
