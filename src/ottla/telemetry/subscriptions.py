"""Client metrics subscriptions of the cluster, compiled, and the part of them that applies to one client (KIP-714)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from ottla.common.config.client_metrics_configs import (
    ALL_METRICS,
    DEFAULT_INTERVAL_MS,
    MATCH,
    METRICS,
    interval_ms,
    list_value,
    matchers,
)
from ottla.common.errors import KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.patterns import Matcher
from ottla.record.checksum import crc32c

logger = logging.getLogger(__name__)


class ClientAttributes(NamedTuple):
    """Attributes of a client that `match` can name; None matches nothing."""

    client_id: str | None
    client_instance_id: str
    client_software_name: str | None
    client_software_version: str | None
    client_source_address: str
    client_source_port: str | None


class Subscription(NamedTuple):
    """One subscription; `matchers` by attribute of the client."""

    metrics: tuple[str, ...]
    interval_ms: int
    matchers: Mapping[str, Matcher]

    def matches(self, client: ClientAttributes) -> bool:
        """Return whether the subscription applies to a client."""
        for name, matcher in self.matchers.items():
            value: str | None = getattr(client, name)
            if value is None or not matcher(value.encode(errors="replace")):
                return False
        return True


class ClientSubscription(NamedTuple):
    """All subscriptions of one client together."""

    subscription_id: int
    metrics: tuple[str, ...]
    """Prefixes of metric names, sorted; `ALL_METRICS` alone if all are subscribed."""
    interval_ms: int

    def wants(self, metric: str) -> bool:
        """Return whether the client was asked for this metric."""
        return self.metrics == (ALL_METRICS,) or metric.startswith(self.metrics)


class Subscriptions:
    """The subscriptions by name; `version` counts their changes."""

    __slots__ = ("_by_name", "version")

    def __init__(self) -> None:
        self._by_name: dict[str, Subscription] = {}
        self.version = 0

    def update(self, name: str, values: Mapping[str, str]) -> None:
        """Add, change or remove a subscription; one without settings does not exist.

        Settings that another implementation stored may be invalid here; such a subscription is logged and ignored.
        """
        self.version += 1
        self._by_name.pop(name, None)
        if not values:
            return
        try:
            self._by_name[name] = Subscription(
                list_value(METRICS, values), interval_ms(values), matchers(list_value(MATCH, values))
            )
        except KafkaError as error:
            logger.warning("client metrics subscription %s is ignored: %s", name, error.message)

    def for_client(self, instance_id: Uuid, client: ClientAttributes) -> ClientSubscription:
        """Return the union of the metrics and the shortest interval of all subscriptions that match."""
        matching = [each for each in self._by_name.values() if each.matches(client)]
        metrics = {metric for each in matching for metric in each.metrics}
        wanted = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        shortest_ms = min([DEFAULT_INTERVAL_MS, *(each.interval_ms for each in matching)])
        return ClientSubscription(subscription_id(wanted, shortest_ms, instance_id), wanted, shortest_ms)


def subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: Uuid) -> int:
    """Return the id of a client's subscription, equal on all brokers: as in Apache Kafka, CRC-32C of the text form
    of metrics and interval, exclusive or the hash of the instance id, as a signed 32-bit number."""
    checksum = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    folded = int.from_bytes(instance_id[:8], "big") ^ int.from_bytes(instance_id[8:], "big")
    number = (checksum ^ (folded >> 32) ^ folded) & 0xFFFFFFFF
    return number - (1 << 32) if number >= 1 << 31 else number
