"""Rate over the last windows of time, as Apache Kafka measures it, and the throttle time of a client above its quota.

Values are summed in windows of fixed length. The sum is divided by the time measured, which is at least that of all
windows but one. A new or rested client may therefore use the amount of all windows at once. A client above its
bound waits until the rate would have fallen to it.

There are two formulas for that wait. Apache Kafka's (`throttle_ms`) assumes that the measured time grows by the wait.
But while windows are missing, passing time first replaces the missing ones. The measured time does not grow, and the
client is still above its bound after the wait. `wait_ms` returns the time until the rate is really within the bound.

Invariant: the total is the sum of the unexpired samples. Memory: one sample per window.
"""

from __future__ import annotations

from collections import deque
from math import ceil, floor
from typing import NamedTuple

MAX_WAIT_MS = (1 << 31) - 1
"""Maximum wait of a response; a limit near 0 would cause a larger or infinite one."""
_ROUNDING_MS = 0.5


class Windows(NamedTuple):
    """Number and length of the windows."""

    number: int = 11
    size_s: float = 1.0

    @property
    def span_s(self) -> float:
        """Seconds until a sample expires."""
        return self.number * self.size_s

    @property
    def least_s(self) -> float:
        """The shortest time that a rate is measured over: its amount may be used at once."""
        return max(self.number - 1, 1) * self.size_s

    def measured_s(self, elapsed_s: float) -> float:
        """The time that a rate is measured over, with an oldest sample from `elapsed_s` ago."""
        missing = self.number - 1 - int(elapsed_s / self.size_s)
        return max(elapsed_s + missing * self.size_s if missing > 0 else elapsed_s, self.size_s)


class _Sample:
    __slots__ = ("last_s", "start_s", "value")

    def __init__(self, start_s: float) -> None:
        self.start_s = self.last_s = start_s
        self.value = 0.0


class WindowedRate:
    """A rate per second; times are seconds of one monotonic clock and never decrease."""

    __slots__ = ("_samples", "_size_s", "_span_s", "total", "windows")

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        # Cached: each request of a client with limits reads both.
        self._size_s, self._span_s = windows.size_s, windows.span_s
        self._samples: deque[_Sample] = deque()
        self.total = 0.0
        """Unexpired total at the last record."""

    def record(self, value: float, now_s: float) -> None:
        """Count an event at `now_s`; a negative value reverts an earlier one."""
        samples = self._samples
        if not samples or now_s - samples[-1].start_s >= self._size_s:
            samples.append(_Sample(now_s))
        last = samples[-1]
        last.value += value
        last.last_s = now_s
        self.total += value
        if now_s - samples[0].last_s >= self._span_s:
            self._expire(now_s)

    def _expire(self, now_s: float) -> None:
        """Drop windows after their last event has expired."""
        samples, span_s = self._samples, self._span_s
        while samples and now_s - samples[0].last_s >= span_s:
            self.total -= samples.popleft().value
        if not samples:
            self.total = 0.0  # remove rounding errors

    def is_idle(self, now_s: float) -> bool:
        """Whether all samples have expired."""
        self._expire(now_s)
        return not self._samples

    def window_s(self, now_s: float) -> float:
        """The time that the rate is measured over."""
        self._expire(now_s)
        return self.windows.measured_s(now_s - self._samples[0].start_s if self._samples else 0.0)

    def rate(self, now_s: float) -> float:
        """The rate per second."""
        window_s = self.window_s(now_s)
        return self.total / window_s

    def throttle_ms(self, bound: float, now_s: float) -> int:
        """Throttle time in milliseconds for a limit of `bound` per second; 0 within it."""
        window_s = self.window_s(now_s)
        excess = self.total / window_s - bound
        if excess <= 0:
            return 0
        return floor(min(excess / bound * window_s * 1000 + 0.5, MAX_WAIT_MS))

    def wait_ms(self, bound: float, now_s: float, next_value: float = 0.0) -> int:
        """Like `throttle_ms`, or longer: until the rate is within `bound` if nothing is recorded meanwhile.

        With `next_value`, until recording it keeps the rate within `bound`. A group of many clients then exceeds its
        bound once, not once in each wait. An amount larger than a window allows waits until windows expire.
        """
        wait_ms = self.throttle_ms(bound, now_s)
        if next_value >= bound * self._size_s:
            next_value = 0.0
        if wait_ms < MAX_WAIT_MS and (wait_ms or next_value):
            end_s = now_s + wait_ms / 1000
            late_ms = (self._within_s(bound, end_s, next_value) - end_s) * 1000
            if late_ms > _ROUNDING_MS:
                wait_ms += ceil(late_ms)
        return min(wait_ms, MAX_WAIT_MS)

    def _within_s(self, bound: float, now_s: float, next_value: float) -> float:
        """Seconds from `now_s` until expiring windows leave room for `next_value`."""
        windows, total = self.windows, self.total + next_value
        for sample in self._samples:
            gone_s = sample.last_s + windows.span_s
            needed_s = total / bound
            measured_s = windows.measured_s(now_s - sample.start_s)
            # Within the current window, or after all missing ones; otherwise when the oldest window expires.
            for within_s in (now_s + max(needed_s - measured_s, 0.0), sample.start_s + needed_s):
                late_s = needed_s - windows.measured_s(within_s - sample.start_s)
                if now_s <= within_s < gone_s and late_s <= _ROUNDING_MS / 1000:
                    return within_s
            now_s = max(now_s, gone_s)
            total -= sample.value
        return now_s


class WindowedMean:
    """Mean of the values recorded in the last windows, such as throttle times."""

    __slots__ = ("_count", "_sum")

    def __init__(self, windows: Windows) -> None:
        self._sum = WindowedRate(windows)
        self._count = WindowedRate(windows)

    def record(self, value: float, now_s: float) -> None:
        """Record one value."""
        self._sum.record(value, now_s)
        self._count.record(1, now_s)

    def mean(self, now_s: float) -> float:
        """The mean; 0 without values."""
        count = self._count.rate(now_s)
        return self._sum.rate(now_s) / count if count else 0.0
