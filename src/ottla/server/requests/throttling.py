"""Throttling of clients with quotas: usage is counted, the response carries the throttle time, the connection is muted.

Installed before the dispatcher only while any client has quotas (KIP-219): otherwise requests bypass it, as do clients
without quotas. If a client ignores the throttle time, its requests wait in the socket, since the connection is muted.
A producer's mute is extended while other clients of the group use up the quota it waits for, but not beyond the total
of all windows, since clients give up on a response (`request.timeout.ms`).

Counted are the bytes of a produce when it is answered, the bytes that a fetch will send (`handlers.data.limited_fetch`)
or that a share fetch has acquired (`handlers.share.share_fetch`), and the time of a request on the loop: from the frame
to its response, or until it parked. The controller counts partition mutations, and its response carries the throttle
time. Not counted: loop time after a request parked, except the reads of a fetch, and that of sending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import cast

from ottla.common.platform.channel import Channel, ClientChannel, Dispatcher, Part
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
"""APIs counted by the controller; the throttle time is the first field of their responses."""

LOOK_UP_S = 1.0
"""Time for which the groups of an idle connection are cached."""
_FETCH, _PRODUCE, _SHARE_FETCH = int(ApiKey.FETCH), int(ApiKey.PRODUCE), int(ApiKey.SHARE_FETCH)
_INT32 = Struct(">i")
_RESPONSE_FIELDS_BYTES = 8
"""Size and correlation id."""
_PERCENT = 100.0
_HEAD_BYTES = 24
_PARTITION_BYTES = 64


def head_bytes(partition_count: int) -> int:
    """Approximate bytes of the response to a fetch, besides records."""
    return _HEAD_BYTES + partition_count * _PARTITION_BYTES


class ThrottledChannel:
    """The connection of a client with quotas, as its requests see it. Implements `ClientChannel`.

    Stores the request in progress; a connection has one at a time.
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
        """The quota type that throttles the client: a field of its limits, or "" for those of the controller."""
        self._api_key = self._api_version = self._correlation_id = self._byte_count = 0
        self._loop_s = 0.0
        self._looked_up_s = 0.0
        self._held_until_s = 0.0
        """Latest end of the mute, whatever other clients use."""

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

    @property
    def client_port(self) -> int | None:
        return cast(ClientChannel, self._channel).client_port

    @property
    def client_software(self) -> tuple[str, str] | None:
        return cast(ClientChannel, self._channel).client_software

    @client_software.setter
    def client_software(self, name_and_version: tuple[str, str]) -> None:
        cast(ClientChannel, self._channel).client_software = name_and_version

    def respond(self, parts: list[Part]) -> None:
        self._channel.respond(parts if self._channel.closed else self._counted(parts, self._clock.monotonic()))

    def mute(self, duration_s: float, *, restart: bool = False, more: Callable[[], float] | None = None) -> None:
        self._channel.mute(duration_s, restart=restart, more=more)

    def close(self, reason: str) -> None:
        self._channel.close(reason)

    def worked(self, spent_s: float) -> None:
        """Add loop time of a response built in steps, after the request had parked."""
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
        """Count a request that is being answered; returns its response with the throttle time."""
        limits = self._limits
        if limits is None:
            return parts
        if self._api_key == _SHARE_FETCH:
            return parts
        if self._api_key == _FETCH:
            return parts if self._api_version >= BATCHES_FROM else self._count_old_fetch(parts, now_s)
        wait_ms, kind = 0, ""
        if self._api_key == _PRODUCE:
            if limits.produce is not None:
                wait_ms, kind = limits.produce.record(self._byte_count, now_s, self._byte_count), "produce"
        elif self._api_key in MUTATIONS:
            wait_ms = self._controller_throttle_ms(parts)
        if parts and limits.request is not None:  # as in Apache Kafka, which does not time requests without a response
            for_time_ms = limits.request.record(self._loop_s * _PERCENT, now_s)
            if for_time_ms > wait_ms:
                wait_ms, kind = for_time_ms, "request"
        if wait_ms <= 0:
            return parts
        self._wait(wait_ms, kind, now_s)
        return self._with_throttle_time(parts, wait_ms)

    def _controller_throttle_ms(self, parts: Sequence[Part]) -> int:
        position = _RESPONSE_FIELDS_BYTES + API[self._api_key].response_header_version(self._api_version)
        wait_ms: int = _INT32.unpack_from(_joined(parts), position)[0]
        return wait_ms

    def _with_throttle_time(self, parts: list[Part], wait_ms: int) -> list[Part]:
        """The response with the throttle time, if its version has the field."""
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

    def _mute(self, wait_ms: int, use: GroupUse | None, now_s: float, *, restart: bool = False) -> None:
        more = None
        if use is not None and self._muted_by == "produce":  # a throttled fetch has sent no bytes
            self._held_until_s = now_s + wait_ms / 1000 + use.rate.windows.span_s
            more = self._left_s
        self._channel.mute(wait_ms / 1000, restart=restart, more=more)

    def _left_s(self) -> float:
        """Remaining mute in seconds: for the usage of the group's other clients, and for a request like the last."""
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
        """Maximum bytes of one fetch; None without a limit."""
        limits = self._limits
        return None if limits is None or limits.fetch is None else limits.fetch.largest

    def fetched(self, byte_count: int, loop_s: float, now_s: float) -> int:
        """Count the bytes that a fetch will send; returns 0, or the throttle time in ms if it must send nothing.

        Unsent bytes are not counted. As in Apache Kafka, except that a batch larger than the limit is sent once all
        other usage has expired, so that no consumer gets stuck: its client is throttled afterwards.
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

    def sent(self, byte_count: int, now_s: float) -> int:
        """Count the records of a share fetch, after `fetched` permitted the response; returns the throttle time in ms.

        Acquired records are sent in any case: until their locks end, no other member gets them.
        """
        use = None if self._limits is None else self._limits.fetch
        wait_ms = 0 if use is None else use.record(byte_count, now_s)
        if wait_ms > 0:
            self._wait(wait_ms, "fetch", now_s)
        return wait_ms

    def _count_old_fetch(self, parts: list[Part], now_s: float) -> list[Part]:
        """Count a fetch version with converted records and without sessions."""
        size = sum(len(part) if isinstance(part, BUFFER_TYPES) else part.length for part in parts)
        wait_ms = self.fetched(size, self._loop_s, now_s)
        if not wait_ms:
            return parts
        release_parts(parts)
        return encode_fetch_response(self._api_version, self._correlation_id, wait_ms, 0, 0, [])

    # -- other limits ------------------------------------------------------------------------------------------------

    def limits_changed(self) -> None:
        """Recompute a current mute with changed quotas."""
        if self._muted_by is None:
            return
        now_s = self._clock.monotonic()
        self._look_up(now_s)
        use = self._use_of(self._muted_by)
        self._mute(0 if use is None else use.throttle_ms(now_s), use, now_s, restart=True)


def _joined(parts: Sequence[Part]) -> bytes:
    return b"".join(part for part in parts if isinstance(part, BUFFER_TYPES))


class QuotaDispatcher:
    """Implements `ottla.common.platform.channel.Dispatcher` while any client has quotas."""

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
        """The dispatcher to use with the current quotas; also updates throttled clients."""
        for held in self._held.values():
            held.limits_changed()
        if self._quotas.any:
            return self
        self._held.clear()
        return self._dispatcher
