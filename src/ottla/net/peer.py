"""Connections to other nodes on sockets: requests out, responses in, in order. Implements `ottla.common.platform.peer`.

Invariants:
- `done` of every request is called exactly once, and never from inside `request` or `close`.
- A response's body is read in place and its owner keeps no reference: the next response reuses the buffer.
- A request that times out fails the whole connection: its late response would be taken for that of the next request,
  and a reconnect is better than a peer that stopped answering.

Not here: version negotiation (nodes of one cluster send their newest, see `ottla.net.peer_messages`), and a bound on
queued requests: each owner has few in flight.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable
from ssl import SSLError
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
    from ottla.security.listener_tls import ListenerTls  # only for types: most nodes use no TLS

logger = logging.getLogger(__name__)

INITIAL_BYTES = 16 * 1024
MAX_RETAINED_BYTES = 2 * 1024 * 1024
"""A larger receive buffer is freed by the first response that takes less than a quarter of it."""
HANDSHAKE_TIMEOUT_S = 10.0
MAX_RESPONSE_BYTES = 256 * 1024 * 1024
LOGIN_STEP_TIMEOUT_S = 10.0


Begun = Callable[[ClientMechanism | None, ConnectionError | None], None]


class Login(NamedTuple):
    """How this node authenticates to other nodes."""

    begin: Callable[[str, Begun], None]
    """Calls back with a host's mechanism, now or later, or with a ConnectionError if it has no credentials."""
    pool: BlockingPool
    """The pool that hashes passwords."""


def at_once(make: Callable[[], ClientMechanism]) -> Callable[[str, Begun], None]:
    """For `Login.begin`: the same mechanism for every host. `make` raises ConnectionError if it has no credentials."""

    def begin(_host: str, begun: Begun) -> None:
        try:
            mechanism = make()
        except ConnectionError as error:
            begun(None, error)
        else:
            begun(mechanism, None)

    return begin


class _PendingRequest(NamedTuple):
    """A request without a response yet."""

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
        """Requests wait until the connection is established and authenticated."""
        self._login_timer: TimerHandle | None = None
        self._unsent: list[tuple[_PendingRequest, bytes]] = []
        self._waiting: deque[_PendingRequest] = deque()
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
            if isinstance(error, SSLError):  # without this line an operator can't see why nodes don't connect
                logger.warning("TLS handshake with %s failed: %s", self.address, error, extra=RATE_LIMITED)
        finally:
            self._task = None

    # -- called by the owner

    def request(self, api_key: int, api_version: int, body: Buffer, done: PeerDone, timeout_s: float) -> None:
        """See `PeerConnection`."""
        if self.failed:
            error = ConnectionError(f"the connection to {self.address} is closed")
            self._loop.call_soon(done, None, error)
            return
        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        frame = request_frame(api_key, api_version, correlation_id, self._network.client_id, body)
        timer = self._loop.call_later(timeout_s, self._timed_out, timeout_s)
        waiting = _PendingRequest(correlation_id, api_key, api_version, done, timer)
        if self._held:
            self._unsent.append((waiting, frame))
        else:
            self._send(waiting, frame)

    def _send(self, waiting: _PendingRequest, frame: bytes) -> None:
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

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Authenticate if required, then send the requests that waited."""
        self._transport = cast(asyncio.Transport, transport)
        if self.failed:
            self._transport.abort()
            return
        if self._network.login is None:
            self._resume()
        else:
            self._log_in(self._network.login)

    def _resume(self) -> None:
        """Send the requests that waited."""
        self._held = False
        unsent, self._unsent = self._unsent, []
        for waiting, frame in unsent:
            self._send(waiting, frame)

    # -- authentication

    def _log_in(self, login: Login) -> None:
        """Authenticate, also again before the session expires; requests wait meanwhile."""
        self._held = True

        def begun(mechanism: ClientMechanism | None, error: ConnectionError | None) -> None:
            if self.failed:
                return
            if mechanism is None:
                logger.warning("this node can't authenticate to %s: %s", self.address, error, extra=RATE_LIMITED)
                self._fail(error or ConnectionError(f"this node has no credentials for {self.address}"))
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
                # Off the loop: SCRAM computes for milliseconds.
                login.pool.submit(lambda: exchange.answered(response), heard)

        def heard(further: object | None, error: BaseException | None) -> None:
            if self.failed:
                return
            if error is not None:
                logger.warning("%s rejected this node's authentication: %s", self.address, error, extra=RATE_LIMITED)
                self._fail(ConnectionError(f"{self.address} rejected the authentication of this node"))
            elif further is not None:
                self._say(exchange, further, login)
            else:
                delay_s = exchange.again_after_s
                if delay_s is not None:
                    self._login_timer = self._loop.call_later(delay_s, self._log_in, login)
                self._resume()

        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        frame = request_frame(spec.key, version, correlation_id, self._network.client_id, body)
        timer = self._loop.call_later(LOGIN_STEP_TIMEOUT_S, self._timed_out, LOGIN_STEP_TIMEOUT_S)
        self._send(_PendingRequest(correlation_id, spec.key, version, answered, timer), frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """The requests fail with a ConnectionError, for any reason."""
        self._fail(ConnectionError(f"{self.address} closed the connection" if exc is None else str(exc)))

    def eof_received(self) -> bool:
        """No further response can arrive."""
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next read; it always has room."""
        if self._end == len(self._buffer):
            self._replace(self._buffer, 2 * len(self._buffer))
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Deliver every complete response."""
        self._end += nbytes
        try:
            start = self._take_frames()
        except ProtocolError as error:
            self._fail(ConnectionError(f"invalid response from {self.address}: {error}"))
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
        """Complete the answered requests; returns the position of the first incomplete frame."""
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
            raise ProtocolError("a response without a request")
        request = self._waiting[0]
        correlation_id, body_start = response_body(request.api_key, request.api_version, self._buffer, start, end)
        if correlation_id != request.correlation_id:
            raise ProtocolError(f"response has correlation id {correlation_id}, expected {request.correlation_id}")
        self._waiting.popleft()
        request.timer.cancel()
        with memoryview(self._buffer)[body_start:end] as body:
            request.done(body, None)

    def _replace(self, content: bytearray, size: int) -> None:
        """Copied, not resized: the loop, or an exception's traceback, may hold a view of it."""
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
        """`client_id` appears in the peers' logs; `tls` is that of the inter-broker listener, and `login` authenticates
        this node.
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
        """The connection failed or was closed."""
        self._connections.discard(connection)

    def close(self) -> None:
        """Close every connection; for the end of the process."""
        for connection in list(self._connections):
            connection.close()
