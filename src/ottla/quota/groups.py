"""Groups of clients that share a quota: the usage of each, created on first use and dropped once expired.

Bounded: a flood of client ids evicts the least recently used groups, which loses their usage. Quotas of client ids do
not limit a client that changes its id with each request; user quotas do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from ottla.quota.limits import ClientLimits, Group, Limit, Quotas
from ottla.quota.windows import WindowedMean, WindowedRate, Windows

MAX_GROUPS = 10_000
"""Maximum number of groups per quota type; one takes about a kilobyte."""


class GroupUse:
    """Usage and limit of one group."""

    __slots__ = ("_at_once", "_longest_wait_s", "bound", "group", "rate", "shown", "waits")

    def __init__(self, limit: Limit, windows: Windows, longest_wait_s: float | None) -> None:
        self.group, self.bound = limit
        self._at_once = self.bound * windows.least_s
        self._longest_wait_s = longest_wait_s
        self.shown = False
        """Whether the group has metrics."""
        self.rate = WindowedRate(windows)
        self.waits = WindowedMean(windows)
        """Throttle time of the group's connections, in milliseconds."""

    def record(self, value: float, now_s: float, next_value: float = 0.0) -> int:
        """Count `value`; returns the throttle time in milliseconds. `next_value`: see `throttle_ms`."""
        rate = self.rate
        rate.record(value, now_s)
        return 0 if rate.total <= self._at_once else self.throttle_ms(now_s, next_value)

    def throttle_ms(self, now_s: float, next_value: float = 0.0) -> int:
        """Throttle time in milliseconds until the group is within its limit, at most the longest wait.

        `next_value` is the amount that a waiting client will use next, for which there must be room.
        """
        if self._longest_wait_s is None:
            return self.rate.wait_ms(self.bound, now_s, next_value)
        return min(self.rate.throttle_ms(self.bound, now_s), int(self._longest_wait_s * 1000))

    @property
    def largest(self) -> float:
        """Largest single amount; a client that used no more in all windows is not throttled."""
        return self._at_once

    def hold_to(self, bound: float) -> None:
        """Apply another limit."""
        self.bound = bound
        self._at_once = bound * self.rate.windows.least_s


class GroupTable:
    """All groups of one quota type."""

    __slots__ = ("_key", "_limits", "_longest_wait_s", "_uses", "_windows", "on_forgotten", "on_made")

    def __init__(self, key: str, windows: Windows, *, longest_wait_s: float | None = None) -> None:
        """`key` names the quota, such as `producer_byte_rate`; `longest_wait_s` bounds the throttle time."""
        self._key = key
        self._longest_wait_s = longest_wait_s
        self._windows = windows
        self._limits = ClientLimits({}, key)
        self._uses: OrderedDict[Group, GroupUse] = OrderedDict()
        self.on_made: Callable[[GroupUse], None] = _nothing
        self.on_forgotten: Callable[[GroupUse], None] = _nothing

    def __len__(self) -> int:
        return len(self._uses)

    def __bool__(self) -> bool:
        """Whether any client has a limit."""
        return bool(self._limits)

    def use_quotas(self, quotas: Quotas) -> None:
        """Apply other quotas from now on; the usage stays."""
        self._limits = ClientLimits(quotas, self._key)
        if not self._limits:
            while self._uses:
                self.on_forgotten(self._uses.popitem()[1])

    def of(self, user: str, client_id: str, now_s: float) -> GroupUse | None:
        """The group of a client, with its current bound; None if it has no limit."""
        limit = self._limits.of(user, client_id)
        if limit is None:
            return None
        use = self._uses.get(limit.group)
        if use is None:
            self._make_room(now_s)
            use = self._uses[limit.group] = GroupUse(limit, self._windows, self._longest_wait_s)
            self.on_made(use)
        else:
            use.hold_to(limit.bound)
            self._uses.move_to_end(limit.group)
        return use

    def _make_room(self, now_s: float) -> None:
        """Drop up to two idle groups for each new one, so that the table follows the active groups."""
        for _ in range(2):
            oldest = next(iter(self._uses.values()), None)
            if oldest is None or not (oldest.rate.is_idle(now_s) or len(self._uses) >= MAX_GROUPS):
                return
            del self._uses[oldest.group]
            self.on_forgotten(oldest)


def _nothing(_use: GroupUse) -> None:
    """Default callback: no metrics for groups."""
