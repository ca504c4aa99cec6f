"""Client quotas of this broker, from the published metadata, and the usage of their groups.

Not here: recording of usage and throttling (`server.requests.throttling`), controller mutation quotas, and
replication quotas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.platform.clock import Clock
from ottla.metadata.image import MetadataImage
from ottla.metrics.registry import MetricsRegistry
from ottla.quota.connection_rate import ConnectionRates
from ottla.quota.groups import GroupTable, GroupUse
from ottla.quota.limits import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientLimits,
    Quotas,
    user_of,
)
from ottla.quota.windows import Windows

_NO_QUOTAS: Quotas = {}
MAX_SHOWN_GROUPS = 500
"""Maximum of groups with metrics per quota type; further groups are limited without metrics."""


class LimitsOfClient(NamedTuple):
    """The groups of one client; None if it has no limit."""

    produce: GroupUse | None
    fetch: GroupUse | None
    request: GroupUse | None


class ClientQuotas:
    """The published quotas, prepared for lookup; `version` increases on changes."""

    __slots__ = (
        "_clock",
        "_followers",
        "_ignored",
        "_mutations",
        "_quotas",
        "connections",
        "fetch",
        "produce",
        "request",
        "version",
        "windows",
    )

    def __init__(self, windows: Windows, clock: Clock, registry: MetricsRegistry) -> None:
        self.windows = windows
        self._clock = clock
        self._quotas: Quotas = {}
        self._ignored = False
        self._followers: list[Callable[[], None]] = []
        self._mutations = ClientLimits({}, CONTROLLER_MUTATION_RATE)
        self.connections = ConnectionRates(windows)
        self.produce = GroupTable(PRODUCER_BYTE_RATE, windows)
        self.fetch = GroupTable(CONSUMER_BYTE_RATE, windows)
        self.request = GroupTable(REQUEST_PERCENTAGE, windows, longest_wait_s=windows.size_s)
        self.version = 0
        for table, name, rate in (
            (self.produce, "produce", "byte_rate"),
            (self.fetch, "fetch", "byte_rate"),
            (self.request, "request", "request_time"),
        ):
            _GroupMetrics(registry, clock, f"kafka_server_{name}_", rate).follow(table)

    @property
    def any(self) -> bool:
        """Whether any client has quotas, so that requests have to be checked."""
        return bool(self.produce or self.fetch or self.request or self._mutations)

    def follow(self, follower: Callable[[], None]) -> None:
        """Call `follower` after each change."""
        self._followers.append(follower)

    def use_config(self, config: BrokerConfig) -> None:
        """Apply changed broker settings."""
        self._ignored = config.ignores_quotas
        rates = self.connections
        rates.of_listeners = config.connection_rates
        rates.limit = config.get_int("max.connection.creation.rate")
        rates.exempt = config.inter_broker_listener if len(config.listeners) > 1 else None

    def use(self, image: MetadataImage) -> None:
        """Apply the quotas of `image`, also to clients that are already throttled."""
        quotas = _NO_QUOTAS if self._ignored else image.client_quotas
        if quotas is self._quotas:
            return
        self._quotas = quotas
        self.version += 1
        self._mutations = ClientLimits(quotas, CONTROLLER_MUTATION_RATE)
        self.connections.use_quotas(quotas)
        for table in (self.produce, self.fetch, self.request):
            table.use_quotas(quotas)
        for follower in self._followers:
            follower()

    def of(self, principal: str, client_id: str) -> LimitsOfClient | None:
        """The groups of a client; None if it has no limit at all."""
        user, now_s = user_of(principal), self._clock.monotonic()
        limits = LimitsOfClient(
            self.produce.of(user, client_id, now_s),
            self.fetch.of(user, client_id, now_s),
            self.request.of(user, client_id, now_s),
        )
        return limits if any(limits) or self._mutations.of(user, client_id) is not None else None


class _GroupMetrics:
    """The metrics of one quota type's groups: usage and throttle time."""

    __slots__ = ("_clock", "_count", "_names", "_registry")

    def __init__(self, registry: MetricsRegistry, clock: Clock, prefix: str, rate: str) -> None:
        self._registry = registry
        self._clock = clock
        self._names = prefix + rate, prefix + "throttle_time"
        self._count = 0

    def follow(self, table: GroupTable) -> None:
        table.on_made, table.on_forgotten = self._made, self._forgotten

    def _made(self, use: GroupUse) -> None:
        if self._count >= MAX_SHOWN_GROUPS:
            return
        self._count += 1
        use.shown = True
        clock, labels = self._clock, use.group.labels
        rate, throttle_time = self._names
        self._registry.gauge(
            rate,
            "Usage of a quota group: bytes per second, or percent of the event loop's time.",
            labels,
            lambda: use.rate.rate(clock.monotonic()),
        )
        self._registry.gauge(
            throttle_time,
            "Mean throttle time of a quota group's connections, in ms.",
            labels,
            lambda: use.waits.mean(clock.monotonic()),
        )

    def _forgotten(self, use: GroupUse) -> None:
        if use.shown:
            self._count -= 1
            for name in self._names:
                self._registry.remove(name, use.group.labels)
