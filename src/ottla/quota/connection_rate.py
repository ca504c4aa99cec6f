"""How many connections may be made a second (KIP-612): to the broker, and from an address.

A broker above its rate accepts nobody for a while; clients wait in the backlogs of its listeners. An address above its
rate is let go after a while, so that it does not come back at once. Neither waits for longer than a window. Left out:
the sockets (`net.listener`); rates of single listeners.
"""

from __future__ import annotations

from collections import OrderedDict

from ottla.quota.limits import Quotas, address_limits
from ottla.quota.windows import WindowedRate, Windows

MAX_ADDRESSES = 10_000
"""Of which the connections are counted."""
UNLIMITED = (1 << 31) - 1
"""Kafka's default."""


class ConnectionRates:
    """New connections of one broker. Times are seconds of a monotonic clock."""

    __slots__ = ("_addresses", "_all", "_by_address", "_windows", "exempt", "limit")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.limit = UNLIMITED
        """`max.connection.creation.rate`."""
        self.exempt: str | None = None
        """The listener of other brokers, where clients have another one: they must not keep brokers out."""
        self._all = WindowedRate(windows)
        self._by_address: dict[str | None, float] = {}
        self._addresses: OrderedDict[str, WindowedRate] = OrderedDict()

    def use_quotas(self, quotas: Quotas) -> None:
        """Other limits of addresses hold from now on; what was counted stays."""
        self._by_address = address_limits(quotas)
        if not self._by_address:
            self._addresses.clear()

    def accepted(self, listener_name: str, now_s: float) -> float:
        """Count a connection to a listener; the seconds for which that one had better accept nobody now."""
        if self.limit >= UNLIMITED or listener_name == self.exempt:
            return 0.0
        self._all.record(1, now_s)
        if not self.limit:
            return self._windows.size_s
        return min(self._all.throttle_ms(self.limit, now_s) / 1000, self._windows.size_s)

    def refused(self, address: str, now_s: float) -> float:
        """Count a connection from an address; 0, or the seconds after which to let it go, which counts as none."""
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
