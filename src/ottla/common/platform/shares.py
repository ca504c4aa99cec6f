"""Queue of long work on the event loop. Callers measure their time (`SHARE_S`) and add themselves again.

An event loop runs all ready work before it reads again. So a client with expensive requests, or many clients that send
without pause, would delay each other client for that long. Instead, long work moves to the end of this queue, and each
tick runs a part of the queue that is limited by time. Heartbeats between nodes, raft traffic and clients that wait for
one response at a time are not queued: they are served between two ticks of the queue.

Long work that arrives between two ticks of the queue may run at once, until all of it together has used `TICK_S`
(`begin`, `is_over`); the rest is queued.

Invariants: first come, first served; a tick takes at most `TICK_S` plus the last piece of work in it; work that fails
does not stop the work behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ottla.common.platform.clock import Scheduler

T = TypeVar("T")

TICK_S = 0.001
"""Time on the loop for all queued work together in one tick, before the loop reads again. A tick costs about 10 us."""
SHARE_S = 0.001
"""Time that one piece of long work may take before it moves to the end of the queue."""


class QueuedWork:
    """One place in the queue. Satisfies `ottla.common.platform.clock.TimerHandle`."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[[], None]) -> None:
        self.run: Callable[[], None] | None = run

    def cancel(self) -> None:
        """Leave the queue; idempotent."""
        self.run = None


class FairQueue:
    """The fair queue of one event loop."""

    __slots__ = ("_began", "_deadline_s", "_line", "_monotonic", "_scheduled", "_scheduler")

    def __init__(self, monotonic: Callable[[], float], scheduler: Scheduler) -> None:
        self._monotonic = monotonic
        self._scheduler = scheduler
        self._line: deque[QueuedWork] = deque()
        self._scheduled = False
        self._began = False
        self._deadline_s = 0.0

    def begin(self) -> None:
        """Measure the time of long work from now on, if it is not measured in this tick yet."""
        if not self._began:
            self._began = True
            self._deadline_s = self._monotonic() + TICK_S
            self._schedule()

    def is_over(self) -> bool:
        """Return whether the time for long work in this tick is used up; call `begin` first."""
        return self._monotonic() >= self._deadline_s

    def add(self, run: Callable[[], None]) -> QueuedWork:
        """Call `run` once, in a later tick, behind the queued work; it adds itself again if work is left."""
        work = QueuedWork(run)
        self._line.append(work)
        self._schedule()
        return work

    @property
    def waiting(self) -> bool:
        """Return whether the queue is not empty."""
        return bool(self._line)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.call_soon(self._tick)

    def _tick(self) -> None:
        line = self._line
        self._scheduled = False
        self._began = True
        self._deadline_s = self._monotonic() + TICK_S
        try:
            for _ in range(len(line)):  # work added meanwhile belongs to the next tick
                run = line.popleft().run
                if run is None:
                    continue
                run()
                if self.is_over():
                    break
        finally:
            self._began = False
            if line:
                self._schedule()


def finish(steps: Generator[Any, None, T]) -> T:
    """Run steps to the end and return their result; for few steps, or when no other work waits."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
