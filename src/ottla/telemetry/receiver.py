"""Receiver of client metrics: stores the last push of each client, and exports it at each scrape (KIP-714).

A metric `org.apache.kafka.producer.topic.record.send.total` is exported as
`kafka_client_producer_topic_record_send_total`, with the labels `client_id` and `client_instance_id` and the attributes
of the client. All names of clients begin with `kafka_client_`, so they never collide with those of the broker.

The broker asks for cumulative sums, so a lost push loses nothing. Growth since the last push is added up. A histogram
is exported whole or not at all, and hides families whose names are those of its series.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.metrics.series import FamilyStart, Step, label_text
from ottla.record.compression import decompress
from ottla.telemetry.bounds import (
    MAX_CLIENT_SERIES,
    MAX_LABEL_CHARACTERS,
    MAX_LABELS,
    MAX_NAME_CHARACTERS,
    MAX_SERIES,
)
from ottla.telemetry.histogram import SUFFIXES, PushedHistogram
from ottla.telemetry.instances import HISTOGRAM, ClientInstance, ClientInstances, SeriesByFamily, Value, series_of
from ottla.telemetry.subscriptions import Subscriptions

if TYPE_CHECKING:
    from ottla.telemetry.otlp import Point

PARTS_PER_STEP = 64
"""Points and other parts of a push that one step handles, beside the points of its last metric."""

_PREFIX = "kafka_client_"
_KAFKA = "org.apache.kafka."
_MANAGER = "kafka_server_client_metrics_"
_NO_WORD = re.compile(r"[^a-zA-Z0-9_]")
_OWN_LABELS = frozenset({"client_id", "client_instance_id"})
_OWN_OF_HISTOGRAM = _OWN_LABELS | {"le"}
_RESOURCE_LABELS = ("client_rack", "group_id", "group_instance_id", "group_member_id", "transactional_id")
"""Attributes of a client's resource that are exported with `ottla_client_info`."""


class ClientMetricsReceiver:
    """State of one broker with at least one subscription."""

    __slots__ = ("errors", "exports", "instances", "omitted", "subscriptions", "throttled", "unknown_subscriptions")

    def __init__(self) -> None:
        self.subscriptions = Subscriptions()
        self.instances = ClientInstances(self.subscriptions)
        self.unknown_subscriptions = 0
        self.throttled = 0
        self.exports = 0
        self.errors = 0
        self.omitted = 0
        """Points that were pushed and not stored."""

    def count(self, error: KafkaError) -> None:
        """Count a refused request."""
        if error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            self.throttled += 1
        elif error.code is ErrorCode.UNKNOWN_SUBSCRIPTION_ID:
            self.unknown_subscriptions += 1

    def store(self, instance: ClientInstance, compression: int, data: bytes, max_bytes: int) -> Iterator[None]:
        """Decompress and decode a push, and store its series, in steps.

        Raises KafkaError: TELEMETRY_TOO_LARGE for more than `max_bytes` decompressed, INVALID_RECORD for other data.
        """
        try:
            yield from self._store(instance, decompressed(compression, data, max_bytes))
        except KafkaError:
            self.errors += 1
            raise
        self.exports += 1

    def _store(self, instance: ClientInstance, data: memoryview) -> Iterator[None]:
        from ottla.telemetry.otlp import DecodedMetric, read  # imported here: with the first push

        new = _NewSeries(instance, MAX_SERIES - self.instances.series_count + instance.series_count)
        parts = 0
        for part in read(data):
            parts += 1
            if isinstance(part, DecodedMetric):
                parts += sum(series_of(point.value) for point in part.points)
                self.omitted += part.omitted + sum(not new.add(point) for point in part.points)
            elif part is not None:
                instance.resource |= {name: part[name] for name in _RESOURCE_LABELS if name in part}
            if parts >= PARTS_PER_STEP:
                parts = 0
                yield None
        new.keep_sums()
        self.instances.store(instance, new.series)

    def collect(self, now_s: float) -> Iterator[Step]:
        """The families of a scrape."""
        yield from self.instances.sweep(now_s)
        yield FamilyStart(f"{_MANAGER}instance_count", "Client instances that the broker knows.")
        yield "", len(self.instances)
        for name, text, value in self._counters():
            yield FamilyStart(name, text, "counter")
            yield "", value
        clients = [(each, _client_labels(each)) for each in self.instances]
        yield FamilyStart("ottla_client_info", "1, with attributes of a client that pushes metrics.")
        for instance, labels in clients:
            yield f"{{{labels}{_info(instance)}}}", 1
        yield from _client_series(clients)

    def _counters(self) -> tuple[tuple[str, str, int], ...]:
        """Name, help and value; the names are Apache Kafka's as far as it has them."""
        unknown = self.unknown_subscriptions
        return (
            (f"{_MANAGER}unknown_subscription_request_count", "Pushes for another subscription.", unknown),
            (f"{_MANAGER}throttle_count", "Requests before the end of the push interval.", self.throttled),
            (f"{_MANAGER}plugin_export_count", "Pushes that were stored for scrapes.", self.exports),
            (f"{_MANAGER}plugin_error_count", "Pushes that could not be decoded.", self.errors),
            ("ottla_client_metrics_omitted_total", "Pushed values that were not stored.", self.omitted),
        )


class _NewSeries:
    """Series of a push in progress; takes at most `limit` of them."""

    __slots__ = ("_count", "_limit", "_old", "_sums", "_wants", "series")

    def __init__(self, instance: ClientInstance, limit: int) -> None:
        self._wants = instance.subscription.wants
        self._old = instance.series
        self._limit = min(limit, MAX_CLIENT_SERIES)
        self._count = 0
        self._sums: set[tuple[str, str]] = set()
        self.series: SeriesByFamily = {}

    def add(self, point: Point) -> bool:
        """Add a point; returns False for one that is not subscribed, has no valid name or would be too many."""
        family = _family(point.metric)
        if family is None or not self._wants(point.metric):
            return False
        own = _OWN_OF_HISTOGRAM if point.kind == HISTOGRAM else _OWN_LABELS
        key, labels, value = (family, point.kind), _labels(point.attributes, own), point.value
        if point.is_delta:
            self._sums.add(key)
            value = _sum_of(value, self._old.get(key, {}).get(labels))
        return self._set(key, labels, value)

    def _set(self, key: tuple[str, str], labels: str, value: Value) -> bool:
        earlier = self.series.get(key, {}).get(labels)
        more = series_of(value) - (0 if earlier is None else series_of(earlier))
        if self._count + more > self._limit:
            return False
        self._count += more
        self.series.setdefault(key, {})[labels] = value
        return True

    def keep_sums(self) -> None:
        """Keep sums of earlier pushes that did not grow in this one."""
        for key in self._sums:
            for labels, value in self._old.get(key, {}).items():
                if labels not in self.series.get(key, {}):
                    self._set(key, labels, value)


def _sum_of(value: Value, earlier: Value | None) -> Value:
    """A value with the one before it; both are of one kind, since their family is."""
    if isinstance(value, PushedHistogram):
        return value.plus(earlier) if isinstance(earlier, PushedHistogram) else value
    return value if earlier is None or isinstance(earlier, PushedHistogram) else value + earlier


def decompressed(compression: int, data: bytes, max_bytes: int) -> memoryview:
    """Decompress a push to at most `max_bytes`. Raises KafkaError TELEMETRY_TOO_LARGE, INVALID_RECORD."""
    try:
        return decompress(compression, data, max_bytes)
    except KafkaError as error:
        too_large = error.code is ErrorCode.MESSAGE_TOO_LARGE
        raise KafkaError(
            ErrorCode.TELEMETRY_TOO_LARGE if too_large else ErrorCode.INVALID_RECORD, error.message
        ) from error


@lru_cache(maxsize=1024)
def _family(metric: str) -> str | None:
    """The exported name of a client's metric; None if it has none."""
    if not metric or len(metric) > MAX_NAME_CHARACTERS:
        return None
    return _PREFIX + _NO_WORD.sub("_", metric.removeprefix(_KAFKA))


def _labels(attributes: dict[str, str], own: frozenset[str]) -> str:
    """Attributes of a data point as labels, without braces and without those of `own`."""
    found: dict[str, str] = {}
    for key, value in attributes.items():
        name = _NO_WORD.sub("_", key[:MAX_LABEL_CHARACTERS]).lstrip("_")
        if name and name not in own and len(found) < MAX_LABELS:
            found[f"_{name}" if name[0].isdigit() else name] = value[:MAX_LABEL_CHARACTERS]
    return label_text(tuple(sorted(found.items())))[1:-1]


def _client_labels(instance: ClientInstance) -> str:
    client = instance.attributes
    client_id = (client.client_id or "")[:MAX_LABEL_CHARACTERS]
    return label_text((("client_id", client_id), ("client_instance_id", client.client_instance_id)))[1:-1]


def _info(instance: ClientInstance) -> str:
    client = instance.attributes
    labels = {
        "client_software_name": client.client_software_name or "",
        "client_software_version": client.client_software_version or "",
        "client_source_address": client.client_source_address,
        "push_interval_ms": str(instance.subscription.interval_ms),
        **instance.resource,
    }
    return "," + label_text(tuple((name, value[:MAX_LABEL_CHARACTERS]) for name, value in labels.items()))[1:-1]


def _client_series(clients: list[tuple[ClientInstance, str]]) -> Iterator[Step]:
    families: dict[str, tuple[str, list[tuple[str, dict[str, Value]]]]] = {}
    for instance, client in clients:
        for (name, kind), values in instance.series.items():
            # A family has one kind; that of its first client.
            first, parts = families.setdefault(name, (kind, []))
            if (first == HISTOGRAM) == (kind == HISTOGRAM):
                parts.append((client, values))
        yield None
    hidden = {f"{name}{suffix}" for name, (kind, _) in families.items() if kind == HISTOGRAM for suffix in SUFFIXES}
    for name in sorted(families.keys() - hidden):
        kind, parts = families[name]
        yield FamilyStart(name, "Pushed by clients.", kind)
        for client, values in parts:
            for labels, value in values.items():
                text = f"{client},{labels}" if labels else client
                if isinstance(value, PushedHistogram):
                    yield from value.samples(text)
                else:
                    yield f"{{{text}}}", value
