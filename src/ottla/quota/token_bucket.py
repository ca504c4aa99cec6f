"""Token bucket that may be overdrawn once (KIP-599): for rare and large costs.

A request is admitted while any token is left, at any cost; the next one waits until the debt is paid. So a
topic of a thousand partitions can be created at a rate of one per second, followed by a long wait.
"""

from __future__ import annotations

from math import floor

from ottla.quota.windows import MAX_WAIT_MS, Windows


class TokenBucket:
    """A bucket with the tokens of all windows as its capacity; full at first."""

    __slots__ = ("_at_s", "_tokens", "rate", "windows")

    def __init__(self, windows: Windows, rate: float, now_s: float) -> None:
        """`rate` is in tokens per second."""
        self.windows = windows
        self.rate = rate
        self._tokens = rate * windows.span_s
        self._at_s = now_s

    def use_rate(self, rate: float, now_s: float) -> None:
        """Change the rate; taken tokens stay taken."""
        self._refill(now_s)
        self.rate = rate

    def take(self, count: float, now_s: float) -> None:
        """Take tokens; the balance may become negative."""
        self._refill(now_s)
        self._tokens -= count

    def throttle_ms(self, now_s: float) -> int:
        """Milliseconds until the debt is paid; 0 without one."""
        self._refill(now_s)
        return floor(min(-self._tokens / self.rate * 1000 + 0.5, MAX_WAIT_MS)) if self._tokens < 0 else 0

    def is_full(self, now_s: float) -> bool:
        """Whether the bucket equals an unused one."""
        self._refill(now_s)
        return self._tokens >= self.rate * self.windows.span_s

    def _refill(self, now_s: float) -> None:
        burst = self.rate * self.windows.span_s
        self._tokens = min(burst, self._tokens + (now_s - self._at_s) * self.rate)
        self._at_s = now_s
