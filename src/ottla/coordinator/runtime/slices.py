"""Work on the loop in slices, so that nobody waits for the whole of it.

Invariants: however many pieces of work are due, they take one slice of a turn together; one that fails ends alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ottla.common.platform.clock import Clock, Scheduler

SLICE_S = 0.004
"""Time on the loop in one piece, plus what one look at the clock is late."""


class SlicedWork:
    """Work that nobody waits for, one after the other: iterators whose steps are short."""

    __slots__ = ("_clock", "_queue", "_scheduler")

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._queue: deque[Iterator[None]] = deque()

    def add(self, steps: Iterator[None]) -> None:
        """Run `steps` to their end, beginning with the next turn."""
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
                # The loop reports it; whoever waits behind it goes on.
                self._queue.popleft()
                if self._queue:
                    self._scheduler.call_soon(self._slice)
                raise
            self._queue.popleft()
