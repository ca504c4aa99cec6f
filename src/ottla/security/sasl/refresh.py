"""When that by which a node says who it is, and which ends, is asked for anew: after a share of its life."""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.platform.clock import Rng

_STEPS = 2**32
USED_SHARE = 0.8
"""Of the life of what a tool shows, after which it is asked for again."""


def renewal_s(now_s: float, ends_s: float) -> float:
    """When a tool asks for the next of what came at `now_s` and ends at `ends_s`, on the same clock."""
    return now_s + USED_SHARE * (ends_s - now_s)


class RefreshWindow(NamedTuple):
    """`factor` of a life, and up to `jitter` of it more, so that not all nodes ask at once."""

    factor: float
    jitter: float
    min_period_s: float
    """But not sooner."""
    buffer_s: float = 0.0
    """And not later than so long before the end. Where there is no time for both, neither counts."""

    def wait_s(self, life_s: float, rng: Rng) -> float:
        """In how many seconds to ask for the next of what lives for so long; never after its end."""
        wait_s = life_s * (self.factor + self.jitter * rng.randrange(_STEPS) / _STEPS)
        if self.min_period_s + self.buffer_s <= life_s:
            wait_s = max(min(wait_s, life_s - self.buffer_s), self.min_period_s)
        return min(wait_s, life_s)
