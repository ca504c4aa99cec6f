"""A proxy in front of a broker that delays responses, or loses them with their connection, like a bad network.

Requests always arrive. Each response of a connection is forwarded, forwarded late while other connections overtake it,
or lost: the connection ends instead, since a client expects responses in order. The request has been executed all the
same, and the client retries.
"""

from __future__ import annotations

import asyncio
import random
import struct
import threading
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType

HOST = "127.0.0.1"
LATE = 0.2
LATEST_S = 0.1
LOST = 0.01
SIZE = struct.Struct(">i")


class Proxy:
    """Listens in a thread of its own; a context manager. Clients reach it where the broker advertises it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._random = random.Random()
        self._broker_port = 0
        self._connections: set[asyncio.StreamWriter] = set()
        self.troubled = False
        """Whether responses are delayed and lost; off while topics are created, which would need retries."""
        self.late = self.lost = 0

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, HOST, 0))
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def connect_to(self, broker_port: int) -> None:
        """The real address of the broker."""
        self._broker_port = broker_port

    def _call(self, call: object) -> asyncio.Server:
        future: Future[asyncio.Server] = asyncio.run_coroutine_threadsafe(call, self._loop)  # type: ignore[arg-type]
        return future.result(30)

    async def _close(self) -> None:
        self._server.close()
        for writer in list(self._connections):
            writer.close()
        tasks = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client, until either side ends it."""
        try:
            broker_reader, broker_writer = await asyncio.open_connection(HOST, self._broker_port)
        except OSError:
            writer.close()
            return
        self._connections |= {writer, broker_writer}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._requests(reader, broker_writer))
                both.create_task(self._answers(broker_reader, writer))
        except* (OSError, EOFError):
            pass
        finally:
            self._connections -= {writer, broker_writer}
            writer.close()
            broker_writer.close()

    @staticmethod
    async def _requests(reader: asyncio.StreamReader, broker: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            broker.write(data)
            await broker.drain()
        raise EOFError

    async def _answers(self, broker: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size = await broker.readexactly(SIZE.size)
            answer = await broker.readexactly(SIZE.unpack(size)[0])
            if self.troubled and self._random.random() < LOST:
                self.lost += 1
                raise EOFError
            if self.troubled and self._random.random() < LATE:
                self.late += 1
                await asyncio.sleep(self._random.random() * LATEST_S)
            with suppress(ConnectionError):
                writer.write(size + answer)
                await writer.drain()
