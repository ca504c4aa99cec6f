"""HTTP server on the broker's loop: `GET /metrics` for Prometheus, `GET /healthz` for a load balancer.

The text is rendered slice by slice, so that the loop serves clients in between, and waits for a slow scraper.
Authorization is delegated: each request is passed to a function (`ottla.server.requests.http_access`) with the name in
the client's certificate, where the endpoint uses TLS, and the `Authorization` header.

Invariants: a request is at most `MAX_REQUEST_BYTES`; a connection serves one request and lives at most `MAX_LIFE_S`;
at most `MAX_CONNECTIONS` exist: then the oldest one without a request is closed, or else the new one is refused.

Not supported: keep-alive, compression.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from ottla.common.kafka.acl import ANONYMOUS
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.endpoint import peer_host
from ottla.metrics.exposition import CONTENT_TYPE, Spelling, render
from ottla.metrics.registry import MetricsRegistry
from ottla.metrics.series import Collector
from ottla.net.wire import ConnectionHandler

logger = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 8 * 1024
MAX_CONNECTIONS = 32
MAX_LIFE_S = 30.0
READ_BYTES = 2 * 1024

Refusal = Callable[[str, str, str, str], str | None]
"""Maps path, principal, value of the `Authorization` header ("" without one) and address to the status of a refusal."""
_STATUSES = {"401": "401 Unauthorized", "403": "403 Forbidden"}


def _refuse_none(path: str, principal: str, authorization: str, host: str) -> str | None:
    return None


class MetricsEndpoint:
    """Serves registry and collectors on one listening socket. `is_healthy` decides the response of `/healthz`."""

    __slots__ = (
        "_collectors",
        "_connections",
        "_encrypt",
        "_registry",
        "_server",
        "_spelling",
        "is_healthy",
        "loop",
        "refusal",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        registry: MetricsRegistry,
        is_healthy: Callable[[], bool],
        *,
        refusal: Refusal = _refuse_none,
        encrypt: Callable[[ConnectionHandler], asyncio.BaseProtocol] | None = None,
        collectors: Sequence[Collector] = (),
        spelling: Spelling = str,
    ) -> None:
        """`refusal` authorizes each request; `encrypt` adds TLS to a connection; `collectors` run at each scrape."""
        self.loop = loop
        self._registry = registry
        self._collectors = collectors
        self._spelling = spelling
        self.is_healthy = is_healthy
        self.refusal = refusal
        self._encrypt = encrypt
        self._server: asyncio.Server | None = None
        self._connections: dict[_ScrapeConnection, None] = {}
        """Oldest first."""

    async def start(self, listening: socket.socket) -> None:
        """Take over a listening socket and serve on it."""
        self._server = await self.loop.create_server(self._connection, sock=listening)

    def _connection(self) -> asyncio.BaseProtocol:
        connection = _ScrapeConnection(self)
        return connection if self._encrypt is None else self._encrypt(connection)

    def close(self) -> None:
        """Stop serving and drop the connections."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()

    def render(self) -> Iterator[bytes]:
        """The text of one scrape in slices."""
        return render(self._registry, self._collectors, self._spelling)

    def admit(self, connection: _ScrapeConnection) -> bool:
        """Register one more connection; False if the limit leaves no room for it."""
        if len(self._connections) >= MAX_CONNECTIONS:
            silent = next((other for other in self._connections if not other.has_asked), None)
            if silent is None:
                return False
            silent.abort()
            self.forget(silent)
        self._connections[connection] = None
        return True

    def forget(self, connection: _ScrapeConnection) -> None:
        """The connection ended."""
        self._connections.pop(connection, None)


class _ScrapeConnection(ConnectionHandler):
    """One request and its response."""

    def __init__(self, endpoint: MetricsEndpoint) -> None:
        self._endpoint = endpoint
        self._transport: asyncio.Transport | None = None
        self._principal = ANONYMOUS
        self._host = ""
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._request = b""
        self._slices: Iterator[bytes] | None = None
        self._paused = False
        self._chunked = False
        self._life: asyncio.TimerHandle | None = None

    @property
    def has_asked(self) -> bool:
        """Whether its request has arrived."""
        return self._slices is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._host = peer_host(str((transport.get_extra_info("peername") or ("",))[0]))
        if not self._endpoint.admit(self):
            self._transport.abort()
            return
        self._life = self._endpoint.loop.call_later(MAX_LIFE_S, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._slices = None
        if self._life is not None:
            self._life.cancel()
        self._endpoint.forget(self)

    def abort(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()

    def identified(self, principal: str) -> None:
        self._principal = principal

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[:]

    def buffer_updated(self, nbytes: int) -> None:
        if self._slices is not None:
            return  # the response is being sent; bytes after the request are ignored
        self._request += self._buffer[:nbytes]
        if b"\r\n\r\n" in self._request:
            line, *headers = self._request.partition(b"\r\n\r\n")[0].split(b"\r\n")
            self._serve(line, headers)
        elif len(self._request) > MAX_REQUEST_BYTES:
            self._answer("431 Request Header Fields Too Large", b"the request is too long\n")

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._endpoint.loop.call_soon(self._write_slice)

    def _serve(self, line: bytes, headers: list[bytes]) -> None:
        words = line.decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._answer("400 Bad Request", b"not an HTTP/1 request\n")
            return
        method, path, version = words
        path = path.partition("?")[0]
        if method not in ("GET", "HEAD"):
            self._answer("405 Method Not Allowed", b"only GET\n")
        elif (
            refused := self._endpoint.refusal(path, self._principal, _authorization(headers), self._host)
        ) is not None:
            logger.warning(
                "refusing %s of %s at %s: %s", path, self._principal, self._host, refused, extra=RATE_LIMITED
            )
            self._answer(_STATUSES[refused], b"show a token or a certificate of somebody who may ask\n")
        elif path == "/healthz":
            healthy = self._endpoint.is_healthy()
            self._answer("200 OK" if healthy else "503 Service Unavailable", b"ok\n" if healthy else b"stopping\n")
        elif path != "/metrics":
            self._answer("404 Not Found", b"there are /metrics and /healthz\n")
        else:
            self._chunked = version != "HTTP/1.0" and method == "GET"
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {CONTENT_TYPE}\r\nConnection: close\r\n"
            if self._chunked:
                head += "Transfer-Encoding: chunked\r\n"
            self._write(head.encode("ascii") + b"\r\n")
            self._slices = iter(()) if method == "HEAD" else self._endpoint.render()
            self._write_slice()

    def _write_slice(self) -> None:
        if self._slices is None or self._transport is None or self._paused or self._transport.is_closing():
            return
        data = next(self._slices, None)
        if data is None:
            if self._chunked:
                self._write(b"0\r\n\r\n")
            self._transport.close()
            return
        if data:  # an empty chunk would end the response
            self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        if not self._paused:
            self._endpoint.loop.call_soon(self._write_slice)

    def _answer(self, status: str, body: bytes) -> None:
        challenge = "WWW-Authenticate: Bearer\r\n" if status == _STATUSES["401"] else ""
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
            f"{challenge}Connection: close\r\n\r\n"
        )
        self._write(head.encode("ascii") + body)
        self._slices = iter(())
        if self._transport is not None:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _authorization(headers: list[bytes]) -> str:
    for header in headers:
        name, _, value = header.partition(b":")
        if name.strip().lower() == b"authorization":
            return value.strip().decode("latin-1")
    return ""
