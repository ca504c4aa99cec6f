"""Client instances that a broker knows, with the checks of their requests and the series of their last push (KIP-714).

Codes and times are those of Apache Kafka: a push before the interval is over is refused, except the first one behind a
new subscription and the last one of a client that terminates.

Invariants: at most `MAX_INSTANCES` instances, the least recently used one is removed for a new one; one instance of a
connection, so that a client that changes its id with each request takes no more memory; at most `MAX_CLIENT_SERIES`
series of a client and `MAX_SERIES` of all.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.telemetry.bounds import MAX_INSTANCES
from ottla.telemetry.histogram import PushedHistogram
from ottla.telemetry.subscriptions import ClientAttributes, Subscriptions

MIN_EXPIRY_S = 60.0
"""Time without a request after which an instance expires, unless three push intervals are longer."""
_EXPIRED_PER_REQUEST = 4
"""Least recently used instances that a new one checks for their expiry."""

HISTOGRAM = "histogram"
"""The kind of families whose values are histograms."""
Value = float | PushedHistogram
SeriesByFamily = dict[tuple[str, str], dict[str, Value]]
"""Values by name and kind of the family, then by labels as in the exposition, without braces."""


def series_of(value: Value) -> int:
    """Series that a value has in the exposition."""
    return value.series_count if isinstance(value, PushedHistogram) else 1


class ClientInstance:
    """One client; `series` are those of its last push."""

    __slots__ = (
        "attributes",
        "connection_id",
        "expires_s",
        "instance_id",
        "last_error",
        "last_get_s",
        "last_push_s",
        "resource",
        "series",
        "subscription",
        "terminating",
        "version",
    )

    def __init__(
        self, instance_id: Uuid, attributes: ClientAttributes, connection_id: int, subscriptions: Subscriptions
    ) -> None:
        self.instance_id = instance_id
        self.attributes = attributes
        self.connection_id = connection_id
        self.series: SeriesByFamily = {}
        self.resource: dict[str, str] = {}
        """Labels of the client's resource: its group, rack and transactional id."""
        self.expires_s = math.inf
        self.subscribe(subscriptions)

    def subscribe(self, subscriptions: Subscriptions) -> None:
        """Evaluate the subscriptions; the next request is accepted at any time."""
        self.subscription = subscriptions.for_client(self.instance_id, self.attributes)
        self.version = subscriptions.version
        self.last_get_s = self.last_push_s = -math.inf
        self.terminating = False
        self.last_error = ErrorCode.NONE

    @property
    def interval_s(self) -> float:
        """The push interval."""
        return self.subscription.interval_ms / 1000

    @property
    def series_count(self) -> int:
        return sum(
            sum(map(series_of, values.values())) if kind == HISTOGRAM else len(values)
            for (_, kind), values in self.series.items()
        )

    def accept_get(self, now_s: float) -> None:
        """Check a GetTelemetrySubscriptions; raises KafkaError THROTTLING_QUOTA_EXCEEDED."""
        if now_s - max(self.last_get_s, self.last_push_s) >= self.interval_s:
            self.last_get_s = now_s
        elif self.last_error not in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "request before the end of the push interval")

    def accept_push(self, now_s: float, subscription_id: int, *, terminating: bool) -> None:
        """Check a PushTelemetry. Raises KafkaError.

        THROTTLING_QUOTA_EXCEEDED before the interval is over, UNKNOWN_SUBSCRIPTION_ID for another subscription, and
        INVALID_REQUEST after the last push of a terminating client.
        """
        if self.terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "request after the last one of a terminating client")
        if self.last_get_s > self.last_push_s or now_s - self.last_push_s >= self.interval_s:
            self.last_push_s = now_s
        elif not terminating:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "push before the end of the push interval")
        if subscription_id != self.subscription.subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the subscription changed")


class ClientInstances:
    """All instances, the least recently used one first."""

    __slots__ = ("_by_connection", "_by_id", "_subscriptions", "series_count")

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions
        self._by_id: OrderedDict[Uuid, ClientInstance] = OrderedDict()
        self._by_connection: dict[int, Uuid] = {}
        self.series_count = 0
        """Series of all instances."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ClientInstance]:
        return iter(list(self._by_id.values()))

    def __contains__(self, instance: object) -> bool:
        return isinstance(instance, ClientInstance) and self._by_id.get(instance.instance_id) is instance

    def find(self, instance_id: Uuid, attributes: ClientAttributes, connection_id: int, now_s: float) -> ClientInstance:
        """Return the instance of a request, created or subscribed again if it has to be."""
        instance = self._by_id.get(instance_id)
        if instance is None:
            self._make_room(connection_id, now_s)
            instance = ClientInstance(instance_id, attributes, connection_id, self._subscriptions)
            self._by_id[instance_id] = instance
            self._by_connection[connection_id] = instance_id
        elif instance.version != self._subscriptions.version:
            self.store(instance, {})
            instance.subscribe(self._subscriptions)
        self._by_id.move_to_end(instance_id)
        instance.expires_s = now_s + max(MIN_EXPIRY_S, 3 * instance.interval_s)
        return instance

    def store(self, instance: ClientInstance, series: SeriesByFamily) -> None:
        """Replace the series of an instance; no effect if it was removed."""
        if instance in self:
            self.series_count -= instance.series_count
            instance.series = series
            self.series_count += instance.series_count

    def end(self, instance: ClientInstance, now_s: float) -> None:
        """A client terminates; its series remain for another scrape."""
        instance.expires_s = now_s + MIN_EXPIRY_S

    def sweep(self, now_s: float) -> Iterator[None]:
        """Remove expired instances, in steps."""
        for instance in self:
            if instance.expires_s <= now_s:
                self._remove(instance)
            yield None

    def _make_room(self, connection_id: int, now_s: float) -> None:
        replaced = self._by_id.get(self._by_connection.get(connection_id, b""))
        if replaced is not None:
            self._remove(replaced)
        oldest = [each for _, each in zip(range(_EXPIRED_PER_REQUEST), self._by_id.values(), strict=False)]
        for instance in oldest:
            if instance.expires_s <= now_s:
                self._remove(instance)
        while len(self._by_id) >= MAX_INSTANCES:
            self._remove(next(iter(self._by_id.values())))

    def _remove(self, instance: ClientInstance) -> None:
        if instance in self:
            self.store(instance, {})
            del self._by_id[instance.instance_id]
            if self._by_connection.get(instance.connection_id) == instance.instance_id:
                del self._by_connection[instance.connection_id]
