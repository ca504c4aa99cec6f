"""Connections to other nodes on sockets: requests out, responses in, in order. Implements `ottla.common.platform.peer`.

Invariants:
- `done` of every request is called exactly once, and never from inside `request` or `close`.
- A response's body is read where it arrived, and its owner keeps nothing of it: the next one comes to the same place.
- A request that was not answered in time fails the whole connection: what would arrive later could not be told from
  the answer to the next request's delay, and a peer that stopped answering is better left.

Left out: negotiation of versions (nodes of one cluster send their newest, see `ottla.net.peer_messages`),
and a bound on what waits to be sent, which is the owner's: each has few requests under way.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable
from ssl import SSLError
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ottla.common.errors import ProtocolError
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import BlockingPool, TimerHandle
from ottla.common.platform.disk import Buffer
from ottla.common.platform.endpoint import format_address
from ottla.common.platform.peer import PeerDone
from ottla.protocol.codec import read_message, write_message
from ottla.protocol.framing import SIZE_BYTES, frame_length
from ottla.protocol.header import request_frame, response_body
from ottla.protocol.registry import spec_of_request
from ottla.security.sasl.exchange import SaslExchange
from ottla.security.sasl.mechanism import ClientMechanism

if TYPE_CHECKING:
    from ottla.security.listener_tls import ListenerTls  # only for types, since most nodes speak no TLS

logger = logging.getLogger(__name__)

INITIAL_BYTES = 16 * 1024
MAX_RETAINED_BYTES = 2 * 1024 * 1024
"""A larger receive buffer is given back by the first response that takes less than a quarter of it."""
HANDSHAKE_TIMEOUT_S = 10.0
MAX_RESPONSE_BYTES = 256 * 1024 * 1024
LOGIN_STEP_TIMEOUT_S = 10.0

_CORRELATION = Struct(">i")


Begun = Callable[[ClientMechanism | None, ConnectionError | None], None]


class Login(NamedTuple):
    """How this node says to others who it is."""

    begin: Callable[[str, Begun], None]
    """Calls with what says so to a host, now or later; with a ConnectionError where there is nothing to say."""
    pool: BlockingPool
    """Where passwords are hashed."""


def at_once(make: Callable[[], ClientMechanism]) -> Callable[[str, Begun], None]:
    """For `Login.begin`: says the same to every host. `make` raises ConnectionError where there is nothing to say."""

    def begin(_host: str, begun: Begun) -> None:
        try:
            mechanism = make()
        except ConnectionError as error:
            begun(None, error)
        else:
            begun(mechanism, None)

    return begin


class _Waiting(NamedTuple):
    """A request that was not answered yet."""

    correlation_id: int
    api_key: int
    api_version: int
    done: PeerDone
    timer: TimerHandle


class SocketPeerConnection(asyncio.BufferedProtocol):
    """One connection. Implements `PeerConnection`."""

    __slots__ = (
        "_buffer",
        "_correlation_ids",
        "_end",
        "_held",
        "_host",
        "_login_timer",
        "_loop",
        "_network",
        "_task",
        "_transport",
        "_unsent",
        "_waiting",
        "address",
        "failed",
    )

    def __init__(self, network: SocketPeerNetwork, host: str, port: int) -> None:
        self._network = network
        self._loop = network.loop
        self._host = host
        self.address = format_address(host, port)
        self.failed = False
        self._correlation_ids = itertools.count()
        self._transport: asyncio.Transport | None = None
        self._held = True
        """Requests wait until there is a connection, and the other node knows who this one is."""
        self._login_timer: TimerHandle | None = None
        self._unsent: list[tuple[_Waiting, bytes]] = []
        self._waiting: deque[_Waiting] = deque()
        self._buffer = bytearray(INITIAL_BYTES)
        self._end = 0
        self._task: asyncio.Task[None] | None = network.loop.create_task(self._connect(host, port))

    async def _connect(self, host: str, port: int) -> None:
        try:
            tls = self._network.tls
            if tls is None:
                await self._loop.create_connection(lambda: self, host, port)
            else:
                await self._loop.create_connection(
                    lambda: self,
                    host,
                    port,
                    ssl=tls.client,
                    server_hostname=host.partition("%")[0],
                    ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                )
        except OSError as error:
            self._fail(ConnectionError(f"{self.address} can't be reached: {error.strerror or error}"))
            if isinstance(error, SSLError):  # no other way tells an operator why nodes don't find each other
                logger.warning("%s refuses TLS, or is refused: %s", self.address, error, extra=RATE_LIMITED)
        finally:
            self._task = None

    # -- the owner's side

    def request(self, api_key: int, api_version: int, body: Buffer, done: PeerDone, timeout_s: float) -> None:
        """See `PeerConnection`."""
        if self.failed:
            error = ConnectionError(f"the connection to {self.address} is closed")
            self._loop.call_soon(done, None, error)
            return
        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        frame = request_frame(api_key, api_version, correlation_id, self._network.client_id, body)
        timer = self._loop.call_later(timeout_s, self._timed_out, timeout_s)
        waiting = _Waiting(correlation_id, api_key, api_version, done, timer)
        if self._held:
            self._unsent.append((waiting, frame))
        else:
            self._send(waiting, frame)

    def _send(self, waiting: _Waiting, frame: bytes) -> None:
        self._waiting.append(waiting)
        cast(asyncio.Transport, self._transport).write(frame)

    def close(self) -> None:
        """See `PeerConnection`."""
        self._fail(ConnectionError(f"the connection to {self.address} was closed here"))

    def _timed_out(self, timeout_s: float) -> None:
        self._fail(TimeoutError(f"{self.address} did not answer within {timeout_s:g} s"))

    def _fail(self, error: Exception) -> None:
        if self.failed:
            return
        self.failed = True
        logger.debug("connection to %s: %s", self.address, error)
        self._network.forget(self)
        waiting = [*self._waiting, *(request for request, _ in self._unsent)]
        self._waiting.clear()
        self._unsent.clear()
        if self._login_timer is not None:
            self._login_timer.cancel()
        for request in waiting:
            request.timer.cancel()
            self._loop.call_soon(request.done, None, error)
        if self._transport is not None:
            self._transport.abort()
        elif self._task is not None:
            self._task.cancel()

    # -- the event loop's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say who this node is, where it has to, and send what was asked for meanwhile."""
        self._transport = cast(asyncio.Transport, transport)
        if self.failed:
            self._transport.abort()
            return
        if self._network.login is None:
            self._go_on()
        else:
            self._log_in(self._network.login)

    def _go_on(self) -> None:
        """Send what was asked for meanwhile."""
        self._held = False
        unsent, self._unsent = self._unsent, []
        for waiting, frame in unsent:
            self._send(waiting, frame)

    # -- who this node is

    def _log_in(self, login: Login) -> None:
        """Say who this node is, also once more before the session ends; requests of meanwhile wait."""
        self._held = True

        def begun(mechanism: ClientMechanism | None, error: ConnectionError | None) -> None:
            if self.failed:
                return
            if mechanism is None:
                logger.warning("this node can't say to %s who it is: %s", self.address, error, extra=RATE_LIMITED)
                self._fail(error or ConnectionError(f"there is nothing to say to {self.address}"))
                return
            exchange = SaslExchange(mechanism)
            self._say(exchange, exchange.first(), login)

        login.begin(self._host, begun)

    def _say(self, exchange: SaslExchange, message: object, login: Login) -> None:
        spec = spec_of_request(message)
        version = spec.max_version
        body = bytearray()
        write_message(message, version, body)

        def answered(data: memoryview | None, error: BaseException | None) -> None:
            if data is not None:
                response: Any
                response, _ = read_message(spec.response, version, data, 0, len(data))
                # Not here: with SCRAM it computes for milliseconds.
                login.pool.submit(lambda: exchange.answered(response), heard)

        def heard(further: object | None, error: BaseException | None) -> None:
            if self.failed:
                return
            if error is not None:
                logger.warning("%s does not let this node in: %s", self.address, error, extra=RATE_LIMITED)
                self._fail(ConnectionError(f"{self.address} does not let this node in"))
            elif further is not None:
                self._say(exchange, further, login)
            else:
                delay_s = exchange.again_after_s
                if delay_s is not None:
                    self._login_timer = self._loop.call_later(delay_s, self._log_in, login)
                self._go_on()

        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        frame = request_frame(spec.key, version, correlation_id, self._network.client_id, body)
        timer = self._loop.call_later(LOGIN_STEP_TIMEOUT_S, self._timed_out, LOGIN_STEP_TIMEOUT_S)
        self._send(_Waiting(correlation_id, spec.key, version, answered, timer), frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Whatever the reason, the owner hears of a ConnectionError."""
        self._fail(ConnectionError(f"{self.address} closed the connection" if exc is None else str(exc)))

    def eof_received(self) -> bool:
        """Nothing can be answered any more."""
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop reads to; there is always room."""
        if self._end == len(self._buffer):
            self._replace(self._buffer, 2 * len(self._buffer))
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Hand out every response that is complete."""
        self._end += nbytes
        try:
            start = self._take_frames()
        except ProtocolError as error:
            self._fail(ConnectionError(f"{self.address} answered nonsense: {error}"))
            return
        if self.failed or start == 0:
            return
        rest = self._buffer[start : self._end]
        if rest or len(self._buffer) <= max(MAX_RETAINED_BYTES, 4 * start):
            self._end = len(rest)
            self._buffer[: self._end] = rest
        else:
            self._replace(rest, INITIAL_BYTES)

    def _take_frames(self) -> int:
        """Answer the requests whose response is there; returns where the first incomplete frame begins."""
        start = 0
        while self._end - start >= SIZE_BYTES and not self.failed:
            size = frame_length(self._buffer, start, MAX_RESPONSE_BYTES)
            frame_end = start + SIZE_BYTES + size
            if frame_end > self._end:
                break
            self._answer(start + SIZE_BYTES, frame_end)
            start = frame_end
        return start

    def _answer(self, start: int, end: int) -> None:
        if not self._waiting:
            raise ProtocolError("a response to no request")
        request = self._waiting[0]
        correlation_id, body_start = response_body(request.api_key, request.api_version, self._buffer, start, end)
        if correlation_id != request.correlation_id:
            raise ProtocolError(f"response {correlation_id} where {request.correlation_id} was expected")
        self._waiting.popleft()
        request.timer.cancel()
        with memoryview(self._buffer)[body_start:end] as body:
            request.done(body, None)

    def _replace(self, content: bytearray, size: int) -> None:
        """Never resized: the loop, or an exception's traceback, may hold a view of it."""
        self._buffer = bytearray(size)
        self._buffer[: len(content)] = content
        self._end = len(content)


class SocketPeerNetwork:
    """Connections to other nodes on one event loop. Implements `PeerNetwork`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client_id: str,
        tls: ListenerTls | None = None,
        login: Login | None = None,
    ) -> None:
        """`client_id` is what the peers see, for their logs; `tls` is that of the listener where they are reached, and
        `login` says to them who this node is.
        """
        self.loop = loop
        self.login = login
        self.client_id = client_id
        self.tls = tls
        self._connections: set[SocketPeerConnection] = set()

    def connect(self, host: str, port: int) -> SocketPeerConnection:
        """See `PeerNetwork`."""
        connection = SocketPeerConnection(self, host, port)
        self._connections.add(connection)
        return connection

    def forget(self, connection: SocketPeerConnection) -> None:
        """It failed or was closed."""
        self._connections.discard(connection)

    def close(self) -> None:
        """Close every connection; for the end of the process."""
        for connection in list(self._connections):
            connection.close()
