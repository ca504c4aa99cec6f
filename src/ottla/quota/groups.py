"""The groups that share a limit: what each has used, made on first use, forgotten once that counts no more.

Bounded: a flood of client ids makes the groups used longest ago give way, which loses what they have used. Whoever
takes a new name with each request escapes a limit of single names anyway; limits of users hold him.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from ottla.quota.limits import ClientLimits, Group, Limit, Quotas
from ottla.quota.windows import WindowedMean, WindowedRate, Windows

MAX_GROUPS = 10_000
"""Of one kind of limit; one costs about a kilobyte."""


class GroupUse:
    """What one group has used, and how much it may."""

    __slots__ = ("_at_once", "_longest_wait_s", "bound", "group", "rate", "shown", "waits")

    def __init__(self, limit: Limit, windows: Windows, longest_wait_s: float | None) -> None:
        self.group, self.bound = limit
        self._at_once = self.bound * windows.least_s
        self._longest_wait_s = longest_wait_s
        self.shown = False
        """Whether there are metrics of it."""
        self.rate = WindowedRate(windows)
        self.waits = WindowedMean(windows)
        """Milliseconds that connections of the group were made to wait."""

    def record(self, value: float, now_s: float, next_value: float = 0.0) -> int:
        """Count what was used; the milliseconds to wait for it. `next_value`: see `throttle_ms`."""
        rate = self.rate
        rate.record(value, now_s)
        return 0 if rate.total <= self._at_once else self.throttle_ms(now_s, next_value)

    def throttle_ms(self, now_s: float, next_value: float = 0.0) -> int:
        """How long to wait for what was used: until the group is within its limit, or so long as anybody has to.

        `next_value` is what whoever waits will use at once, and then finds room for.
        """
        if self._longest_wait_s is None:
            return self.rate.wait_ms(self.bound, now_s, next_value)
        return min(self.rate.throttle_ms(self.bound, now_s), int(self._longest_wait_s * 1000))

    @property
    def largest(self) -> float:
        """What may be used in one go; nobody waits who used no more in all windows."""
        return self._at_once

    def hold_to(self, bound: float) -> None:
        """Another limit holds."""
        self.bound = bound
        self._at_once = bound * self.rate.windows.least_s


class GroupTable:
    """All groups of one kind of limit."""

    __slots__ = ("_key", "_limits", "_longest_wait_s", "_uses", "_windows", "on_forgotten", "on_made")

    def __init__(self, key: str, windows: Windows, *, longest_wait_s: float | None = None) -> None:
        """`key` names the limit, such as `producer_byte_rate`; with `longest_wait_s` nobody waits for longer."""
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
        """Whether anybody is limited."""
        return bool(self._limits)

    def use_quotas(self, quotas: Quotas) -> None:
        """Other limits hold from now on; what was used stays used."""
        self._limits = ClientLimits(quotas, self._key)
        if not self._limits:
            while self._uses:
                self.on_forgotten(self._uses.popitem()[1])

    def of(self, user: str, client_id: str, now_s: float) -> GroupUse | None:
        """The group of a client, with the bound that holds now; None where it isn't limited."""
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
        """Two go for each that comes, while they are idle: so the table follows those that are in use."""
        for _ in range(2):
            oldest = next(iter(self._uses.values()), None)
            if oldest is None or not (oldest.rate.is_idle(now_s) or len(self._uses) >= MAX_GROUPS):
                return
            del self._uses[oldest.group]
            self.on_forgotten(oldest)


def _nothing(_use: GroupUse) -> None:
    """Nobody shows the groups."""
