"""Refresh times of expiring credentials: after a share of their lifetime."""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.platform.clock import Rng

_STEPS = 2**32
USED_SHARE = 0.8
"""Share of a credential's lifetime after which a tool refreshes it."""


def renewal_s(now_s: float, ends_s: float) -> float:
    """Refresh time of a credential received at `now_s` that expires at `ends_s`, on the same clock."""
    return now_s + USED_SHARE * (ends_s - now_s)


class RefreshWindow(NamedTuple):
    """Refresh after `factor` of the lifetime plus up to `jitter` of it, so that nodes spread their requests."""

    factor: float
    jitter: float
    min_period_s: float
    """Minimum wait."""
    buffer_s: float = 0.0
    """Minimum time before the expiry. If the lifetime is too short for both bounds, neither applies."""

    def wait_s(self, life_s: float, rng: Rng) -> float:
        """Seconds until the refresh of a credential with lifetime `life_s`; never after its expiry."""
        wait_s = life_s * (self.factor + self.jitter * rng.randrange(_STEPS) / _STEPS)
        if self.min_period_s + self.buffer_s <= life_s:
            wait_s = max(min(wait_s, life_s - self.buffer_s), self.min_period_s)
        return min(wait_s, life_s)
