"""Requests of clients with limits: counted, answered at once with the time to wait, the connection muted (KIP-219).

Stands before the dispatcher while any client is limited, and nowhere else: without quotas nothing of this is on the way
of a request. Who is not limited passes as before. A client that does not heed the time finds its connection muted, so
its requests wait in its socket. A mute goes on where others of the group have used what a producer waited for; but no
longer than all windows, since clients give up on an answer (`request.timeout.ms`).

Counted are the bytes of a produce when it is answered, what a fetch is about to send (`handlers.data.limited_fetch`),
and the time that a request had the loop: from the frame to its answer, or until it parked. Partitions are counted by
the controller, whose answer says how long to wait. Left out: the loop's time of what is done for a parked request
later, but for the reads of a fetch, and that of sending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct

from ottla.common.platform.channel import Channel, Dispatcher, Part
from ottla.common.platform.clock import Clock
from ottla.common.platform.endpoint import ListenerInfo
from ottla.net.outbound import release_parts
from ottla.net.sender import BUFFER_TYPES
from ottla.protocol.fetch import BATCHES_FROM, encode_fetch_response
from ottla.protocol.framing import SIZE_BYTES
from ottla.protocol.header import REQUEST_FIELDS, decode_response, encode_response
from ottla.protocol.registry import API, ApiKey
from ottla.quota.groups import GroupUse
from ottla.server.requests.client_quotas import ClientQuotas, LimitsOfClient
from ottla.server.requests.dispatch import RequestDispatcher

MUTATIONS = frozenset({ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS})
"""What the controller counts; the time to wait is the first field of their responses."""

LOOK_UP_S = 1.0
"""How long the groups of a connection are remembered: one that is idle for long is forgotten, and made anew."""
_FETCH, _PRODUCE = int(ApiKey.FETCH), int(ApiKey.PRODUCE)
_INT32 = Struct(">i")
_RESPONSE_FIELDS_BYTES = 8
"""Size and correlation id."""
_PERCENT = 100.0


class ThrottledChannel:
    """The connection of a client that has limits, as its requests see it. Implements `Channel`.

    One request of a connection is in work at a time, which is the one that is remembered here.
    """

    __slots__ = (
        "_api_key",
        "_api_version",
        "_byte_count",
        "_channel",
        "_client_id",
        "_clock",
        "_correlation_id",
        "_held_until_s",
        "_limits",
        "_looked_up_s",
        "_loop_s",
        "_muted_by",
        "_principal",
        "_quotas",
        "_version",
    )

    def __init__(self, channel: Channel, quotas: ClientQuotas, clock: Clock) -> None:
        self._channel = channel
        self._quotas = quotas
        self._clock = clock
        self._client_id = b""
        self._principal = ""
        self._version = -1
        self._limits: LimitsOfClient | None = None
        self._muted_by: str | None = None
        """The kind of limit that the client waits for: a field of its limits, or "" for those of the controller."""
        self._api_key = self._api_version = self._correlation_id = self._byte_count = 0
        self._loop_s = 0.0
        self._looked_up_s = 0.0
        self._held_until_s = 0.0
        """When it is served, whatever others have used."""

    # -- Channel -----------------------------------------------------------------------------------------------------

    @property
    def id(self) -> int:
        return self._channel.id

    @property
    def client_host(self) -> str:
        return self._channel.client_host

    @property
    def principal(self) -> str:
        return self._channel.principal

    @property
    def listener(self) -> ListenerInfo:
        return self._channel.listener

    @property
    def closed(self) -> bool:
        return self._channel.closed

    def respond(self, parts: list[Part]) -> None:
        self._channel.respond(parts if self._channel.closed else self._counted(parts, self._clock.monotonic()))

    def mute(self, duration_s: float, *, anew: bool = False, more: Callable[[], float] | None = None) -> None:
        self._channel.mute(duration_s, anew=anew, more=more)

    def close(self, reason: str) -> None:
        self._channel.close(reason)

    def worked(self, spent_s: float) -> None:
        """The loop was used so long for an answer that is made in steps, after the request had parked."""
        self._loop_s += spent_s

    # -- requests ----------------------------------------------------------------------------------------------------

    def serve(
        self, dispatcher: RequestDispatcher, exempt: frozenset[int], buffer: bytearray, start: int, end: int
    ) -> list[Part] | None:
        """Serve a request that is long enough for its header; see `Dispatcher.handle`."""
        api_key, api_version, correlation_id, size = REQUEST_FIELDS.unpack_from(buffer, start)
        position = start + REQUEST_FIELDS.size
        now_s = self._clock.monotonic()
        client_id = buffer[position : position + size] if size > 0 else b""
        if (
            client_id != self._client_id
            or self._version != self._quotas.version
            or self._principal != self._channel.principal
            or now_s - self._looked_up_s >= LOOK_UP_S
        ):
            self._client_id, self._principal = bytes(client_id), self._channel.principal
            self._look_up(now_s)
        if self._limits is None or api_key in exempt:
            return dispatcher.handle(self._channel, buffer, start, end)
        self._api_key, self._api_version, self._correlation_id = api_key, api_version, correlation_id
        self._byte_count = end - start
        self._muted_by = None
        self._loop_s = 0.0
        parts = dispatcher.handle(self, buffer, start, end)
        end_s = self._clock.monotonic()
        self._loop_s = end_s - now_s
        return None if parts is None else self._counted(parts, end_s)

    def _look_up(self, now_s: float) -> None:
        self._looked_up_s = now_s
        self._version = self._quotas.version
        self._limits = self._quotas.of(self._principal, self._client_id.decode("utf-8", "replace"))

    def _counted(self, parts: list[Part], now_s: float) -> list[Part]:
        """Count a request that is being answered; its answer, with the time to wait."""
        limits = self._limits
        if limits is None:
            return parts
        if self._api_key == _FETCH:
            return parts if self._api_version >= BATCHES_FROM else self._count_old_fetch(parts, now_s)
        wait_ms, kind = 0, ""
        if self._api_key == _PRODUCE:
            if limits.produce is not None:
                wait_ms, kind = limits.produce.record(self._byte_count, now_s, self._byte_count), "produce"
        elif self._api_key in MUTATIONS:
            wait_ms = self._told_by_controller(parts)
        if parts and limits.request is not None:  # as in Apache Kafka, which does not time what has no answer
            for_time_ms = limits.request.record(self._loop_s * _PERCENT, now_s)
            if for_time_ms > wait_ms:
                wait_ms, kind = for_time_ms, "request"
        if wait_ms <= 0:
            return parts
        self._wait(wait_ms, kind, now_s)
        return self._telling(parts, wait_ms)

    def _told_by_controller(self, parts: Sequence[Part]) -> int:
        position = _RESPONSE_FIELDS_BYTES + API[self._api_key].response_header_version(self._api_version)
        wait_ms: int = _INT32.unpack_from(_joined(parts), position)[0]
        return wait_ms

    def _telling(self, parts: list[Part], wait_ms: int) -> list[Part]:
        """The same answer with the time to wait, where its version has a place for it."""
        spec = API[self._api_key]
        if not parts or not spec.supports(self._api_version):
            return parts
        correlation_id, message = decode_response(self._api_key, self._api_version, _joined(parts)[SIZE_BYTES:])
        if not hasattr(message, "throttle_time_ms"):
            return parts
        message.throttle_time_ms = wait_ms
        return [encode_response(self._api_key, self._api_version, correlation_id, message)]

    def _wait(self, wait_ms: int, kind: str, now_s: float) -> None:
        self._muted_by = kind
        use = self._use_of(kind)
        if use is not None:
            use.waits.record(wait_ms, now_s)
        self._mute(wait_ms, use, now_s)

    def _mute(self, wait_ms: int, use: GroupUse | None, now_s: float, *, anew: bool = False) -> None:
        more = None
        if use is not None and self._muted_by == "produce":  # what a fetch may not send it does not send
            self._held_until_s = now_s + wait_ms / 1000 + use.rate.windows.span_s
            more = self._left_s
        self._channel.mute(wait_ms / 1000, anew=anew, more=more)

    def _left_s(self) -> float:
        """How much longer to wait: for what others of the group have used meanwhile, and for one more like the last."""
        now_s = self._clock.monotonic()
        use = None if self._limits is None else self._limits.produce
        if use is None:
            return 0.0
        return min(use.throttle_ms(now_s, self._byte_count) / 1000, self._held_until_s - now_s)

    def _use_of(self, kind: str) -> GroupUse | None:
        use: GroupUse | None = getattr(self._limits, kind, None)
        return use

    # -- fetches -----------------------------------------------------------------------------------------------------

    @property
    def largest_fetch(self) -> float | None:
        """The bytes that one fetch may ask for; None for any number."""
        limits = self._limits
        return None if limits is None or limits.fetch is None else limits.fetch.largest

    def fetched(self, byte_count: int, loop_s: float, now_s: float) -> int:
        """Count what a fetch is about to send; above 0 it must send nothing, and its client waits so many ms.

        What is not sent is not counted. As Apache Kafka, but that a batch which alone is above the limit is sent once
        nothing else counts, so that no consumer gets stuck: its client waits afterwards.
        """
        limits = self._limits
        if limits is None:
            return 0
        use = limits.fetch
        for_time_ms = 0 if limits.request is None else limits.request.record(loop_s * _PERCENT, now_s)
        wait_ms = 0 if use is None else use.record(byte_count, now_s)
        if wait_ms <= 0 and for_time_ms <= 0:
            return 0
        if wait_ms > for_time_ms:
            self._wait(wait_ms, "fetch", now_s)
        else:
            self._wait(for_time_ms, "request", now_s)
        if use is not None:
            if for_time_ms <= 0 and use.rate.total <= byte_count:
                return 0
            use.rate.record(-byte_count, now_s)
        return max(wait_ms, for_time_ms)

    def _count_old_fetch(self, parts: list[Part], now_s: float) -> list[Part]:
        """Of a version whose records were converted, and which knows no sessions."""
        size = sum(len(part) if isinstance(part, BUFFER_TYPES) else part.length for part in parts)
        wait_ms = self.fetched(size, self._loop_s, now_s)
        if not wait_ms:
            return parts
        release_parts(parts)
        return encode_fetch_response(self._api_version, self._correlation_id, wait_ms, 0, 0, [])

    # -- other limits ------------------------------------------------------------------------------------------------

    def limits_changed(self) -> None:
        """Wait for what other limits demand of what was used, if it waits at all."""
        if self._muted_by is None:
            return
        now_s = self._clock.monotonic()
        self._look_up(now_s)
        use = self._use_of(self._muted_by)
        self._mute(0 if use is None else use.throttle_ms(now_s), use, now_s, anew=True)


def _joined(parts: Sequence[Part]) -> bytes:
    return b"".join(part for part in parts if isinstance(part, BUFFER_TYPES))


class QuotaDispatcher:
    """Implements `ottla.common.platform.channel.Dispatcher` while any client is limited."""

    __slots__ = ("_clock", "_dispatcher", "_exempt", "_held", "_quotas")

    def __init__(self, dispatcher: RequestDispatcher, quotas: ClientQuotas, clock: Clock) -> None:
        self._dispatcher = dispatcher
        self._quotas = quotas
        self._clock = clock
        self._exempt = dispatcher.unthrottled()
        self._held: dict[int, ThrottledChannel] = {}

    def handle(self, channel: Channel, buffer: bytearray, start: int, end: int) -> list[Part] | None:
        """See `Dispatcher`."""
        if end - start < REQUEST_FIELDS.size:
            return self._dispatcher.handle(channel, buffer, start, end)
        held = self._held.get(channel.id)
        if held is None:
            held = self._held[channel.id] = ThrottledChannel(channel, self._quotas, self._clock)
        return held.serve(self._dispatcher, self._exempt, buffer, start, end)

    def connection_closed(self, channel: Channel) -> None:
        """See `Dispatcher`."""
        self._held.pop(channel.id, None)
        self._dispatcher.connection_closed(channel)

    def choose(self) -> Dispatcher:
        """Who serves requests by the limits that hold now; those who wait do so by them too."""
        for held in self._held.values():
            held.limits_changed()
        if self._quotas.any:
            return self
        self._held.clear()
        return self._dispatcher
