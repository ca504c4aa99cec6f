"""Lag of the event loop: a histogram for the scrape, and a warning with the cause once clients had to wait.

A timer is due every `INTERVAL_S`. While it is late, the loop serves no other request. The warning
names the longest request of that interval, and the processor time of the loop's thread: a lag without processor time
means that the machine did not run the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import Scheduler
from ottla.metrics.registry import MetricsRegistry
from ottla.server.requests.statistics import LongestRequest

logger = logging.getLogger(__name__)

INTERVAL_S = 0.1
"""Interval of the timer: a longer one misses more short lags, a shorter one wakes an idle broker more often."""
WARNING_S = 0.1
"""Lag that is logged."""
BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class LoopLag:
    """Measures the lag of one event loop from `begin` on."""

    __slots__ = ("_cpu_s", "_due_s", "_histogram", "_longest", "_monotonic", "_scheduler", "_started_cpu_s")

    def __init__(
        self,
        scheduler: Scheduler,
        monotonic: Callable[[], float],
        cpu_s: Callable[[], float],
        registry: MetricsRegistry,
        longest: LongestRequest,
    ) -> None:
        """`cpu_s` returns the processor time of the loop's thread, in seconds."""
        self._scheduler = scheduler
        self._monotonic = monotonic
        self._cpu_s = cpu_s
        self._longest = longest
        self._histogram = registry.histogram(
            "ottla_loop_lag_seconds", "Time by which a timer of the event loop ran late, in seconds.", bounds=BOUNDS_S
        )
        self._due_s = 0.0
        self._started_cpu_s = 0.0

    def begin(self) -> None:
        """Measure from now on, until the loop ends."""
        self._started_cpu_s = self._cpu_s()
        self._due_s = self._monotonic() + INTERVAL_S
        self._scheduler.call_later(INTERVAL_S, self._measure)

    def _measure(self) -> None:
        lag_s = max(0.0, self._monotonic() - self._due_s)
        self._histogram.observe(lag_s)
        longest = self._longest.take()
        if lag_s >= WARNING_S:
            logger.warning(
                "event loop lag of %.0f ms; %s; processor time of the loop %.0f ms",
                lag_s * 1000,
                "no long request" if longest is None else f"longest request {longest[0]}, {longest[1]:.0f} ms",
                (self._cpu_s() - self._started_cpu_s) * 1000,
                extra=RATE_LIMITED,
            )
        self.begin()
