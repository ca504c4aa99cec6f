"""Fair queue for clients that used up their share of the event loop; each tick does a part of the queued work.

An event loop runs all ready work before it reads again. So a client with expensive requests, or many clients that send
without pause, would delay each other client for that long. Work beyond its share moves to the end of the queue instead,
and a turn ends by time. Heartbeats between nodes, raft traffic and clients that wait for one response at a time are
not queued: they are served between two turns of the queue.

Invariants: first come, first served; a turn takes at most `TURN_S` plus the last piece of work in it; work that fails
does not stop the work behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ottla.common.platform.clock import Scheduler

T = TypeVar("T")

TURN_S = 0.005
"""Time on the loop for all queued work together, before the loop reads again."""
SHARE_S = 0.002
"""Time that one piece of long work may take before it moves to the end of the queue."""


class Share:
    """One place in the queue. Satisfies `ottla.common.platform.clock.TimerHandle`."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[[], None]) -> None:
        self.run: Callable[[], None] | None = run

    def cancel(self) -> None:
        """Leave the queue; idempotent."""
        self.run = None


class LoopShares:
    """The fair queue of one event loop."""

    __slots__ = ("_line", "_monotonic", "_scheduled", "_scheduler")

    def __init__(self, monotonic: Callable[[], float], scheduler: Scheduler) -> None:
        self._monotonic = monotonic
        self._scheduler = scheduler
        self._line: deque[Share] = deque()
        self._scheduled = False

    def add(self, run: Callable[[], None]) -> Share:
        """Call `run` once, in a later turn, behind the queued work; it adds itself again if work is left."""
        share = Share(run)
        self._line.append(share)
        self._schedule()
        return share

    @property
    def waiting(self) -> bool:
        """Return whether the queue is not empty."""
        return bool(self._line)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.call_soon(self._turn)

    def _turn(self) -> None:
        line, monotonic = self._line, self._monotonic
        deadline_s = monotonic() + TURN_S
        self._scheduled = False
        try:
            for _ in range(len(line)):  # work added meanwhile belongs to the next turn
                run = line.popleft().run
                if run is None:
                    continue
                run()
                if monotonic() >= deadline_s:
                    break
        finally:
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
