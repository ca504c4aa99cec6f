"""Work for clients that had their share of the loop: it waits in one line, and each turn does some of it.

An event loop runs all that is ready before it reads again. So a client whose requests are expensive, or many clients
that send without pause, would keep each other client waiting for all of it. Work that has used its share goes to the
end of the line instead, and a turn ends by time. Heartbeats between nodes, the raft traffic and requests of clients
that wait for one answer at a time are not in the line: they are served between two turns of it.

Invariants: first come, first served; one turn takes at most `TURN_S` and the last piece of work in it; work that fails
does not stop what is behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ottla.common.platform.clock import Scheduler

T = TypeVar("T")

TURN_S = 0.005
"""Time on the loop for all work in the line together, before the loop reads again."""
SHARE_S = 0.002
"""Time that one piece of long work takes before it goes behind the others."""


class Share:
    """One place in the line. Satisfies `ottla.common.platform.clock.TimerHandle`."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[[], None]) -> None:
        self.run: Callable[[], None] | None = run

    def cancel(self) -> None:
        """Give the place up; idempotent."""
        self.run = None


class LoopShares:
    """The line of one event loop."""

    __slots__ = ("_line", "_monotonic", "_scheduled", "_scheduler")

    def __init__(self, monotonic: Callable[[], float], scheduler: Scheduler) -> None:
        self._monotonic = monotonic
        self._scheduler = scheduler
        self._line: deque[Share] = deque()
        self._scheduled = False

    def add(self, run: Callable[[], None]) -> Share:
        """Call `run` once, in a later turn, behind what waits already; it adds itself again where work is left."""
        share = Share(run)
        self._line.append(share)
        self._schedule()
        return share

    @property
    def waiting(self) -> bool:
        """Whether anything is in the line."""
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
            for _ in range(len(line)):  # what is added meanwhile belongs to the next turn
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
    """What steps return that are few, or that nothing else waits for."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
