"""Listening sockets: bind, accept within the limits, pass each connection to the loop.

The broker accepts connections itself instead of using the loop's server, to control what happens at the limits:
- At `max.connections` accepting pauses until a connection ends, as in Apache Kafka, and a connection without a request
  is closed to make room.
- A connection above `max.connections.per.ip` of its address is closed at once.
- Without free descriptors (EMFILE) accepting pauses in the same way, at least for a moment; open connections continue.
- While many clients connect at once, accepting shares the time of a tick with other long work (`FairQueue`).

Invariants: an accepted socket is soon either in the `ConnectionSet` or closed; a failed accept never ends the listener.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.channel import Gate
from ottla.common.platform.clock import TimerHandle
from ottla.common.platform.endpoint import Endpoint, canonical_host, peer_host
from ottla.net import congestion
from ottla.net.connection import Connection
from ottla.net.connection_set import ConnectionSet
from ottla.net.wire import MAX_HANDSHAKES_PER_TICK, PlainWire, Wire

logger = logging.getLogger(__name__)

MAX_ACCEPTS_PER_TICK = 64
"""For a listener without TLS; one with TLS accepts as many as may handshake in a tick."""
MIN_ACCEPTS_PER_TICK = 8
"""Accepted even if the time for long work in a tick is used up, so that 2,000 waiting clients cannot wait for long."""
ACCEPT_RETRY_S = 0.5
"""Pause of accepting when descriptors or memory ran out, in seconds."""
MAX_LEAVING = 256
"""Maximum of connections above the rate of their address that are delayed; more are closed at once."""
DEFAULT_BACKLOG = 4096
"""Linux's default of `net.core.somaxconn`, which also limits it. A client that finds it full retries after a second."""
_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""Errors of an address that this machine does not have, or of a machine without IPv6."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_SocketAddress = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
_FamilyAddress = tuple[socket.AddressFamily, _SocketAddress]


def bind_socket(host: str, port: int, backlog: int = DEFAULT_BACKLOG) -> socket.socket:
    """Bind a TCP socket and listen on it; port 0 means a free one.

    `host` "" or "::" means all addresses of IPv4 and IPv6, as in Apache Kafka, or of IPv4 alone where the machine has
    no IPv6; "0.0.0.0" means all of IPv4. A name means the first of its addresses that this machine has, those
    of IPv4 before those of IPv6, as in Java. Nothing is accepted yet, but clients that connect wait instead of being
    refused. Raises OSError.
    """
    missing: OSError | None = None
    for family, address in _addresses(host, port):
        try:
            return _listen(family, address, backlog)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            missing = missing or error
    raise missing or OSError(errno.EADDRNOTAVAIL, "the name has no address")


def _addresses(host: str, port: int) -> list[_FamilyAddress]:
    """Addresses to bind, in the order in which to try them. Raises OSError."""
    if host in ("", "::"):
        return [(socket.AF_INET6, ("::", port)), (socket.AF_INET, ("0.0.0.0", port))]
    if ":" in host and "%" not in host:
        host = canonical_host(host)  # an IPv4-mapped address needs an IPv4 socket
    # Bytes, where the name allows it: text loads the IDNA codec, which costs the start milliseconds.
    name = host.encode("ascii") if host.isascii() else host
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE, proto=socket.IPPROTO_TCP)
    return sorted(((each[0], each[4]) for each in found), key=lambda each: each[0] != socket.AF_INET)


def _listen(family: socket.AddressFamily, address: _SocketAddress, backlog: int) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address[0] != "::"))
        listening.bind(address)
        listening.listen(backlog)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


class Listener:
    """One listening socket of a broker."""

    __slots__ = (
        "_accepting",
        "_accepts_per_tick",
        "_closed",
        "_connections",
        "_leaving",
        "_make_gate",
        "_make_wire",
        "_pacing",
        "_receive_buffer_bytes",
        "_retry",
        "_send_buffer_bytes",
        "_socket",
        "_tasks",
        "endpoint",
    )

    def __init__(
        self,
        listening: socket.socket,
        endpoint: Endpoint,
        connections: ConnectionSet,
        *,
        make_wire: Callable[[socket.socket], Wire] | None = None,
        make_gate: Callable[[], Gate] | None = None,
        pacing: bytes | None = None,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> None:
        """Take over `listening`, for which `congestion.begin_unpaced` returned `pacing`.

        `make_wire` creates the wire of an accepted socket; without it bytes are unencrypted.
        `make_gate` creates the filter before the dispatcher of each connection.
        Buffer sizes of -1 leave them to the system, which adapts them to the path.
        """
        self._socket = listening
        self.endpoint = endpoint
        self._connections = connections
        self._make_wire = make_wire or PlainWire
        self._accepts_per_tick = MAX_ACCEPTS_PER_TICK if make_wire is None else MAX_HANDSHAKES_PER_TICK
        self._make_gate = make_gate
        self._pacing = pacing
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._accepting = False
        self._closed = False
        self._retry: TimerHandle | None = None
        self._leaving: dict[socket.socket, TimerHandle] = {}
        """Delayed connections above the rate of their address."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start_accepting(self) -> None:
        """Accept connections from now on, including waiting ones; does nothing when closed or accepting."""
        if not self._accepting and not self._closed:
            self._accepting = True
            self._connections.loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Stop accepting and free the address; open connections stay. Idempotent."""
        self._rest()
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        for leaving, timer in self._leaving.items():
            timer.cancel()
            leaving.close()
        self._socket.close()

    def _rest(self) -> None:
        if self._accepting:
            self._accepting = False
            self._connections.loop.remove_reader(self._socket.fileno())

    def _accept(self) -> None:
        connections = self._connections
        room = connections.room
        if room <= 0:
            self._rest()
            connections.when_room(self.start_accepting)
            logger.warning(
                "%d connections are open: new clients wait, and connections without a request are closed for them; "
                "raise max.connections or the limit on open files (ulimit -n), whichever is lower",
                connections.limits.max_connections,
                extra=RATE_LIMITED,
            )
            return
        fair_queue = connections.fair_queue
        fair_queue.begin()
        for count in range(min(room, self._accepts_per_tick)):  # the loop reports further waiting clients
            if count >= MIN_ACCEPTS_PER_TICK and fair_queue.is_over():
                return
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                connections.metrics.accept_failures.value += 1
                if error.errno in _EXHAUSTED:
                    logger.error(
                        "can't accept connections: %s; raise the limit on open files (ulimit -n) or lower "
                        "max.connections",
                        error.strerror,
                        extra=RATE_LIMITED,
                    )
                    self._rest()
                    connections.when_room(self.start_accepting)
                    self._retry = connections.loop.call_later(ACCEPT_RETRY_S, self.start_accepting)
                    return
                continue  # this client is gone already (ECONNABORTED and the like)
            self._admit(accepted, peer_host(str(address[0])))
            rest_s = connections.rates.accepted(self.endpoint.listener_name, connections.loop.time())
            if rest_s > 0:
                self._rest()
                self._retry = connections.loop.call_later(rest_s, self.start_accepting)
                return

    def _admit(self, accepted: socket.socket, host: str) -> None:
        connections = self._connections
        if not connections.admit(host):
            connections.metrics.rejected.value += 1
            logger.warning("refusing %s: max.connections.per.ip is reached", host, extra=RATE_LIMITED)
            accepted.close()
            return
        leave_s = connections.rates.refused(host, connections.loop.time())
        if leave_s > 0:
            self._refuse(accepted, host, leave_s)
            return
        try:
            self._tune(accepted, host)
        except OSError:
            accepted.close()
            connections.dismiss(host)
            return
        task = connections.loop.create_task(self._connect(accepted, host))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refuse(self, accepted: socket.socket, host: str, leave_s: float) -> None:
        """Close a connection above the rate of its address after a delay, during which it counts against the limits."""
        connections = self._connections
        connections.metrics.throttled.value += 1
        if len(self._leaving) < MAX_LEAVING:
            self._leaving[accepted] = connections.loop.call_later(leave_s, self._close_refused, accepted, host)
        else:
            accepted.close()
            connections.dismiss(host)

    def _close_refused(self, accepted: socket.socket, host: str) -> None:
        del self._leaving[accepted]
        accepted.close()
        self._connections.dismiss(host)

    async def _connect(self, accepted: socket.socket, host: str) -> None:
        connections = self._connections
        wire = self._make_wire(accepted)
        gate = None if self._make_gate is None else self._make_gate()
        connection = Connection(connections, self.endpoint.listener, host, wire, gate)
        try:
            await wire.connect(connections.loop, connection)
        except OSError as error:
            logger.debug("a connection of %s ended before it began: %s", host, error)
        finally:
            if not connection.made:
                wire.close()
                connections.dismiss(host)

    def _tune(self, accepted: socket.socket, host: str) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._pacing is not None:
            congestion.restore_congestion_control(accepted, host, self._pacing)
        if self._send_buffer_bytes > 0:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        if self._receive_buffer_bytes > 0:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
