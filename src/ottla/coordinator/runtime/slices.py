"""Time-sliced work on the loop, so that long work does not delay other tasks.

Invariants: all pending pieces of work share one slice per tick; a piece that fails does not stop the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ottla.common.platform.clock import Clock, Scheduler

SLICE_S = 0.004
"""Maximum time on the loop in one piece, plus the delay until the clock is read."""


class SlicedWork:
    """Runs background work in sequence: iterators with short steps."""

    __slots__ = ("_clock", "_queue", "_scheduler")

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._queue: deque[Iterator[None]] = deque()

    def add(self, steps: Iterator[None]) -> None:
        """Run `steps` to their end, beginning with the next tick."""
        self._queue.append(steps)
        if len(self._queue) == 1:
            self._scheduler.call_soon(self._slice)

    def _slice(self) -> None:
        monotonic = self._clock.monotonic
        deadline_s = monotonic() + SLICE_S
        while self._queue:
            try:
                for _ in self._queue[0]:
                    if monotonic() >= deadline_s:
                        self._scheduler.call_soon(self._slice)
                        return
            except Exception:
                # The loop reports it; the work behind it continues.
                self._queue.popleft()
                if self._queue:
                    self._scheduler.call_soon(self._slice)
                raise
            self._queue.popleft()
