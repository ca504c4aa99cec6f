"""Connection creation rates (KIP-612): of the broker, of a listener and of an address.

A listener above its rate, or above the broker's, stops accepting for a while; clients wait in its backlog. A connection
above the rate of its address is closed after a delay, so that it does not reconnect at once. Neither delay exceeds
a quota window. Not here: the sockets (`net.listener`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from ottla.quota.limits import Quotas, address_limits
from ottla.quota.windows import WindowedRate, Windows

MAX_ADDRESSES = 10_000
"""Maximum number of addresses with a connection count."""
UNLIMITED = (1 << 31) - 1
"""Kafka's default."""


class ConnectionRates:
    """Connection creation rates of one broker. Times are seconds of a monotonic clock."""

    __slots__ = ("_addresses", "_all", "_by_address", "_listeners", "_windows", "exempt", "limit", "of_listeners")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.limit = UNLIMITED
        """`max.connection.creation.rate`."""
        self.exempt: str | None = None
        """The inter-broker listener, if clients have another one. Exempt: clients must not block brokers."""
        self.of_listeners: Mapping[str, int] = {}
        """Rate limits of single listeners, by name."""
        self._all = WindowedRate(windows)
        self._listeners: dict[str, WindowedRate] = {}
        self._by_address: dict[str | None, float] = {}
        self._addresses: OrderedDict[str, WindowedRate] = OrderedDict()

    def use_quotas(self, quotas: Quotas) -> None:
        """Apply other address limits from now on; past connections stay counted."""
        self._by_address = address_limits(quotas)
        if not self._by_address:
            self._addresses.clear()

    def accepted(self, listener_name: str, now_s: float) -> float:
        """Count a connection to a listener; returns the seconds for which it should stop accepting."""
        rest_s = 0.0
        if self.limit < UNLIMITED and listener_name != self.exempt:
            rest_s = self._count(self._all, self.limit, now_s)
        limit = self.of_listeners.get(listener_name)
        if limit is not None:
            rate = self._listeners.setdefault(listener_name, WindowedRate(self._windows))
            rest_s = max(rest_s, self._count(rate, limit, now_s))
        return rest_s

    def _count(self, rate: WindowedRate, limit: int, now_s: float) -> float:
        rate.record(1, now_s)
        return min(rate.throttle_ms(limit, now_s) / 1000, self._windows.size_s) if limit else self._windows.size_s

    def refused(self, address: str, now_s: float) -> float:
        """Count a connection from an address; returns 0, or the seconds before closing an excess one (not counted)."""
        bound = self._by_address.get(address)
        if bound is None:
            bound = self._by_address.get(None)
            if bound is None:
                return 0.0
        rate = self._addresses.get(address)
        if rate is None:
            self._make_room(now_s)
            rate = self._addresses[address] = WindowedRate(self._windows)
        else:
            self._addresses.move_to_end(address)
        rate.record(1, now_s)
        wait_ms = rate.throttle_ms(bound, now_s)
        if wait_ms <= 0:
            return 0.0
        rate.record(-1, now_s)
        return min(wait_ms / 1000, self._windows.size_s)

    def _make_room(self, now_s: float) -> None:
        for _ in range(2):
            address, oldest = next(iter(self._addresses.items()), (None, None))
            if address is None or oldest is None:
                return
            if not oldest.is_idle(now_s) and len(self._addresses) < MAX_ADDRESSES:
                return
            del self._addresses[address]
