"""Tokens that come back at a rate, and may be overdrawn once (KIP-599): for rare and large costs.

A request is admitted while there is anything left, whatever it costs; the next one waits until the debt is paid. So a
topic of a thousand partitions can be made at a rate of one a second, after which nothing can be made for long.
"""

from __future__ import annotations

from math import floor

from ottla.quota.windows import LONGEST_WAIT_MS, Windows


class TokenBucket:
    """As many tokens as come in all windows, full at first."""

    __slots__ = ("_at_s", "_tokens", "rate", "windows")

    def __init__(self, windows: Windows, rate: float, now_s: float) -> None:
        """`rate` is tokens a second."""
        self.windows = windows
        self.rate = rate
        self._tokens = rate * windows.span_s
        self._at_s = now_s

    def use_rate(self, rate: float, now_s: float) -> None:
        """Go on at another rate; what was taken stays taken."""
        self._refill(now_s)
        self.rate = rate

    def take(self, count: float, now_s: float) -> None:
        """Take tokens, also those that are not there."""
        self._refill(now_s)
        self._tokens -= count

    def throttle_ms(self, now_s: float) -> int:
        """Milliseconds until the debt is paid; 0 without one."""
        self._refill(now_s)
        return floor(min(-self._tokens / self.rate * 1000 + 0.5, LONGEST_WAIT_MS)) if self._tokens < 0 else 0

    def is_full(self, now_s: float) -> bool:
        """Whether it is as if it had never been used."""
        self._refill(now_s)
        return self._tokens >= self.rate * self.windows.span_s

    def _refill(self, now_s: float) -> None:
        burst = self.rate * self.windows.span_s
        self._tokens = min(burst, self._tokens + (now_s - self._at_s) * self.rate)
        self._at_s = now_s
