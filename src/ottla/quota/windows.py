"""A rate over the last windows of time, as Apache Kafka measures it, and how long who exceeds it has to wait.

Values are summed in windows of fixed length, of which so many count. The time that the sum is divided by is at least
that of all windows but one: so a client that begins may take as much at once as it may in all of them, and one that has
rested may too. Who is above its bound waits until the rate would have fallen to it.

There are two answers to how long that takes. Apache Kafka's takes the time measured over to grow by the wait; but as
long as there are fewer windows than count, the windows that are missing go as it comes, and who waited is still above
its bound, by all that he took at first. The other one (`wait_ms`) looks when that is so, or when there is room for
more.

Invariant: the total is the sum of the samples that count. Memory: one sample a window.
"""

from __future__ import annotations

from collections import deque
from math import ceil, floor
from typing import NamedTuple

LONGEST_WAIT_MS = (1 << 31) - 1
"""The largest wait that a response can hold; a limit next to 0 would ask for more, or for an infinite one."""
_ROUNDING_MS = 0.5


class Windows(NamedTuple):
    """How many windows count, and how long each is."""

    number: int = 11
    size_s: float = 1.0

    @property
    def span_s(self) -> float:
        """How long it takes until something counts no more."""
        return self.number * self.size_s

    @property
    def least_s(self) -> float:
        """The shortest time that a rate is measured over: what may come at once comes in so long."""
        return max(self.number - 1, 1) * self.size_s

    def measured_s(self, elapsed_s: float) -> float:
        """The time that a rate is measured over whose oldest sample began so long ago."""
        missing = self.number - 1 - int(elapsed_s / self.size_s)
        return max(elapsed_s + missing * self.size_s if missing > 0 else elapsed_s, self.size_s)


class _Sample:
    __slots__ = ("last_s", "start_s", "value")

    def __init__(self, start_s: float) -> None:
        self.start_s = self.last_s = start_s
        self.value = 0.0


class WindowedRate:
    """Something a second; times are seconds of one monotonic clock and don't go back."""

    __slots__ = ("_samples", "_size_s", "_span_s", "total", "windows")

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        # Each request of a client with limits asks for both.
        self._size_s, self._span_s = windows.size_s, windows.span_s
        self._samples: deque[_Sample] = deque()
        self.total = 0.0
        """What counted when something was recorded last."""

    def record(self, value: float, now_s: float) -> None:
        """Count something that happens now; a negative value takes back what was counted."""
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
        """A window counts as long as anything that happened in it does."""
        samples, span_s = self._samples, self._span_s
        while samples and now_s - samples[0].last_s >= span_s:
            self.total -= samples.popleft().value
        if not samples:
            self.total = 0.0  # what rounding has left of it

    def is_idle(self, now_s: float) -> bool:
        """Whether nothing counts any more."""
        self._expire(now_s)
        return not self._samples

    def window_s(self, now_s: float) -> float:
        """The time that the rate is measured over."""
        self._expire(now_s)
        return self.windows.measured_s(now_s - self._samples[0].start_s if self._samples else 0.0)

    def rate(self, now_s: float) -> float:
        """What happens a second."""
        window_s = self.window_s(now_s)
        return self.total / window_s

    def throttle_ms(self, bound: float, now_s: float) -> int:
        """How long who is held to `bound` a second has to wait from now on, in milliseconds; 0 within it."""
        window_s = self.window_s(now_s)
        excess = self.total / window_s - bound
        if excess <= 0:
            return 0
        return floor(min(excess / bound * window_s * 1000 + 0.5, LONGEST_WAIT_MS))

    def wait_ms(self, bound: float, now_s: float, next_value: float = 0.0) -> int:
        """The same, or longer: until the rate is within `bound` where nothing is recorded meanwhile.

        With `next_value` until it still is when that is recorded, so that a group of many takes it once beyond its
        bound, not once in each wait; but what is more than a window allows comes as others do, when windows have gone.
        """
        wait_ms = self.throttle_ms(bound, now_s)
        if next_value >= bound * self._size_s:
            next_value = 0.0
        if wait_ms < LONGEST_WAIT_MS and (wait_ms or next_value):
            end_s = now_s + wait_ms / 1000
            late_ms = (self._within_s(bound, end_s, next_value) - end_s) * 1000
            if late_ms > _ROUNDING_MS:
                wait_ms += ceil(late_ms)
        return min(wait_ms, LONGEST_WAIT_MS)

    def _within_s(self, bound: float, now_s: float, next_value: float) -> float:
        """When from `now_s` on what counts, and counts less as windows go, leaves room for `next_value`."""
        windows, total = self.windows, self.total + next_value
        for sample in self._samples:
            gone_s = sample.last_s + windows.span_s
            needed_s = total / bound
            measured_s = windows.measured_s(now_s - sample.start_s)
            # Within the window under way, or after all that were missing; if neither, when the oldest one goes.
            for within_s in (now_s + max(needed_s - measured_s, 0.0), sample.start_s + needed_s):
                late_s = needed_s - windows.measured_s(within_s - sample.start_s)
                if now_s <= within_s < gone_s and late_s <= _ROUNDING_MS / 1000:
                    return within_s
            now_s = max(now_s, gone_s)
            total -= sample.value
        return now_s


class WindowedMean:
    """The mean of what was noted in the last windows: how long clients were made to wait."""

    __slots__ = ("_count", "_sum")

    def __init__(self, windows: Windows) -> None:
        self._sum = WindowedRate(windows)
        self._count = WindowedRate(windows)

    def record(self, value: float, now_s: float) -> None:
        """Note one value."""
        self._sum.record(value, now_s)
        self._count.record(1, now_s)

    def mean(self, now_s: float) -> float:
        """The mean; 0 of nothing."""
        count = self._count.rate(now_s)
        return self._sum.rate(now_s) / count if count else 0.0
