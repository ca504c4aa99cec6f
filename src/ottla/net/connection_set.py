"""Shared state of the connections of one event loop: limits, buffers, counters and the list of open connections.

At a limit new clients wait, and the oldest connection without a served request is closed to make room for them. It
first gets a moment to send its request. Connecting alone therefore keeps no client out.

Invariants: a connection is in the set from `connection_made` to `connection_lost`; it counts against the limits from
`admit`, right after the accept, to its end; the sweep is the only timer, so that idle connections cost nothing between
sweeps.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from ottla.common.platform.channel import Dispatcher
from ottla.common.platform.clock import BlockingPool, TimerHandle
from ottla.common.platform.endpoint import ListenerInfo
from ottla.common.platform.shares import FairQueue
from ottla.metrics.registry import MetricsRegistry
from ottla.net.outbound import Scratch
from ottla.net.sender import Senders
from ottla.quota.connection_rate import ConnectionRates
from ottla.quota.windows import Windows

logger = logging.getLogger(__name__)

RECEIVE_BYTES = 64 * 1024
"""One read from a socket; larger buffers measured no faster."""
SWEEPS_PER_IDLE_TIME = 8
MIN_SWEEP_INTERVAL_S = 0.02
MAX_SWEEP_INTERVAL_S = 30.0
NEWCOMER_S = 0.05
"""Time for the first request of a connection while other clients wait. A client's first packet has already arrived by
then, and a reconnecting flood gets only one place in this time."""


class ConnectionLimits(NamedTuple):
    """Connection limits, named after Kafka's broker configs."""

    socket_request_max_bytes: int = 100 * 1024 * 1024
    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1
    per_ip_overrides: Mapping[str, int] = MappingProxyType({})
    """Limits by address that override `max_connections_per_ip`."""
    connections_max_idle_ms: int = 600_000
    """Negative: never."""


class NetworkMetrics:
    """Counters of the network layer."""

    __slots__ = (
        "accept_failures",
        "accepted",
        "bytes_in",
        "bytes_out",
        "closed_idle",
        "closed_silent",
        "failed_authentications",
        "protocol_errors",
        "rejected",
        "throttled",
    )

    def __init__(self, registry: MetricsRegistry) -> None:
        prefix = "kafka_server_socket_server_metrics_"
        self.bytes_in = registry.counter(prefix + "incoming_byte_total", "Bytes read from clients")
        self.bytes_out = registry.counter(prefix + "outgoing_byte_total", "Bytes sent to clients")
        self.accepted = registry.counter(prefix + "connection_creation_total", "Connections accepted")
        self.closed_idle = registry.counter(prefix + "expired_connections_killed_count", "Idle connections closed")
        self.closed_silent = registry.counter(
            "ottla_network_silent_connections_closed_total",
            "Connections without a request, closed at a limit to admit others",
        )
        self.failed_authentications = registry.counter(
            prefix + "failed_authentication_total", "Connections that failed authentication or the TLS handshake"
        )
        self.rejected = registry.counter(
            "ottla_network_connections_rejected_total", "Connections closed by max.connections.per.ip"
        )
        self.throttled = registry.counter(
            "ottla_network_connections_throttled_total", "Connections closed by connection_creation_rate of an address"
        )
        self.accept_failures = registry.counter(
            "ottla_network_accept_failures_total", "Failed accepts, for example without free descriptors"
        )
        self.protocol_errors = registry.counter(
            "ottla_network_protocol_errors_total", "Connections closed because of invalid input"
        )


class Member(Protocol):
    """A connection as the set needs it."""

    @property
    def id(self) -> int: ...

    @property
    def client_host(self) -> str: ...

    @property
    def listener(self) -> ListenerInfo: ...

    client_software: tuple[str, str] | None
    """Name and version that the client sent (KIP-511), if they are kept."""

    def sweep(self) -> int:
        """Count a sweep without activity and free unused buffers. Returns the number of such sweeps in a row."""
        ...

    def quiesce(self) -> None:
        """Serve no further request; a parked one may still be answered."""
        ...

    def close(self, reason: str) -> None:
        """Close once the pending output has left; idempotent."""
        ...

    def abort(self, reason: str) -> None:
        """Close at once; idempotent."""
        ...


class ConnectionSet:
    """The connections of one loop."""

    __slots__ = (
        "_admitted",
        "_eviction",
        "_ids",
        "_newcomers",
        "_on_fatal",
        "_on_room",
        "_per_host",
        "_quiet",
        "_sweep_handle",
        "connections",
        "dispatcher",
        "fair_queue",
        "limits",
        "loop",
        "metrics",
        "rates",
        "receive_buffer",
        "receive_view",
        "scratch",
        "senders",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        dispatcher: Dispatcher,
        limits: ConnectionLimits,
        pool: BlockingPool,
        registry: MetricsRegistry,
        on_fatal: Callable[[BaseException], None],
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        """`monotonic` measures the fair queue; without it the clock of the loop does, in milliseconds with uvloop."""
        self.loop = loop
        self.dispatcher = dispatcher
        self.limits = limits
        self.metrics = NetworkMetrics(registry)
        self.rates = ConnectionRates(Windows())
        """Limits of new connections that this process overrides."""
        self.receive_buffer = bytearray(RECEIVE_BYTES)
        self.receive_view = memoryview(self.receive_buffer)
        self.scratch = Scratch()
        self.senders = Senders(pool)
        self.fair_queue = FairQueue(monotonic or loop.time, loop)
        """Queue of the connections that have used their share of the loop."""
        self.connections: dict[int, Member] = {}
        self._per_host: dict[str, int] = {}
        self._admitted = 0
        self._ids = itertools.count(1)
        self._on_fatal = on_fatal
        self._on_room: list[Callable[[], None]] = []
        self._newcomers: dict[Member, float] = {}
        """Connections without a served request, oldest first, with their creation times."""
        self._eviction: TimerHandle | None = None
        self._sweep_handle: TimerHandle | None = None
        self._quiet: asyncio.Future[None] | None = None

    def next_id(self) -> int:
        """An id that is unique among the connections of this process."""
        return next(self._ids)

    def use_dispatcher(self, dispatcher: Dispatcher) -> None:
        """Send new requests to another dispatcher; parked ones are answered by the one that parked them."""
        self.dispatcher = dispatcher

    @property
    def room(self) -> int:
        """Number of further connections that `max.connections` allows."""
        return self.limits.max_connections - self._admitted

    def use_limits(self, limits: ConnectionLimits) -> None:
        """Apply other limits from now on; open connections stay."""
        self.limits = limits
        self._notify_room()

    def admit(self, host: str) -> bool:
        """Count one more connection of this address; False when `max.connections.per.ip` is reached.

        Each admission ends with `dismiss`, or with `remove` once the connection was added.
        """
        count = self._per_host.get(host, 0)
        limits = self.limits
        if count >= limits.per_ip_overrides.get(host, limits.max_connections_per_ip):
            return False
        self._per_host[host] = count + 1
        self._admitted += 1
        return True

    def dismiss(self, host: str) -> None:
        """An admitted connection ended."""
        self._admitted -= 1
        left = self._per_host[host] - 1
        if left:
            self._per_host[host] = left
        else:
            del self._per_host[host]
        self._notify_room()

    def _notify_room(self) -> None:
        if self._on_room:
            waiting, self._on_room = self._on_room, []
            for callback in waiting:
                callback()

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when a connection has ended; the oldest one without a request is closed for it."""
        if callback not in self._on_room:
            self._on_room.append(callback)
        self._evict()

    def asked(self, connection: Member) -> None:
        """Its first request is served: it can no longer be evicted."""
        self._newcomers.pop(connection, None)

    def _evict(self) -> None:
        """Close the oldest connection without a request for a waiting client, once its grace period is over."""
        if self._eviction is not None or not self._on_room or not self._newcomers:
            return
        connection, made_s = next(iter(self._newcomers.items()))
        left_s = made_s + NEWCOMER_S - self.loop.time()
        if left_s > 0:
            self._eviction = self.loop.call_later(left_s, self._evict_now)
            return
        del self._newcomers[connection]
        self.metrics.closed_silent.value += 1
        connection.abort("it sent no request, and other clients wait at the connection limit")

    def _evict_now(self) -> None:
        self._eviction = None
        self._evict()

    def add(self, connection: Member) -> None:
        """Add a new connection."""
        self.connections[connection.id] = connection
        self._newcomers[connection] = self.loop.time()
        self._evict()
        self.metrics.accepted.value += 1
        if self._sweep_handle is None:
            self._schedule_sweep()

    def remove(self, connection: Member) -> None:
        """Remove an ended connection; idempotent."""
        if self.connections.pop(connection.id, None) is None:
            return
        self._newcomers.pop(connection, None)
        self.dismiss(connection.client_host)
        if not self.connections and self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)

    def fatal(self, error: BaseException) -> None:
        """Report a broken invariant: the owner stops the broker."""
        self._on_fatal(error)

    def quiesce(self) -> None:
        """Serve no further request on any connection; parked ones may still be answered."""
        for connection in list(self.connections.values()):
            connection.quiesce()

    async def close(self, timeout_s: float) -> None:
        """Close all connections once their output has left; after `timeout_s` drop the output."""
        for timer in (self._sweep_handle, self._eviction):
            if timer is not None:
                timer.cancel()
        for connection in list(self.connections.values()):
            connection.close("the broker stops")
        if self.connections:
            self._quiet = self.loop.create_future()
            handle = self.loop.call_later(timeout_s, self._abort_all)
            await self._quiet
            handle.cancel()

    def _abort_all(self) -> None:
        for connection in list(self.connections.values()):
            connection.abort("the broker stops")

    def _schedule_sweep(self) -> None:
        idle_ms = self.limits.connections_max_idle_ms
        interval = MAX_SWEEP_INTERVAL_S
        if idle_ms >= 0:
            interval = min(interval, max(idle_ms / 1000 / SWEEPS_PER_IDLE_TIME, MIN_SWEEP_INTERVAL_S))
        self._sweep_handle = self.loop.call_later(interval, self._sweep, interval)

    def _sweep(self, interval: float) -> None:
        """Free large receive buffers that are no longer used, and close connections that were idle for too long."""
        idle_ms = self.limits.connections_max_idle_ms
        for connection in list(self.connections.values()):
            idle_sweeps = connection.sweep()
            if idle_ms >= 0 and idle_sweeps * interval * 1000 > idle_ms:
                self.metrics.closed_idle.value += 1
                connection.abort("idle for longer than connections.max.idle.ms")
        if self.connections:
            self._schedule_sweep()
        else:
            self._sweep_handle = None
