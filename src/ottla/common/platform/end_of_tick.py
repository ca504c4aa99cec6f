"""Scheduler for work at the end of an event loop tick.

One tick of a loop delivers many requests. Work that they share (one append, one sweep) is deferred to the end of the
tick by `at_end_of_turn`; work that it defers in turn still runs at the same end. So a chain of such steps, from a
decision to its last record, takes one tick and not one a step, however many requests the loop would read in between.
Each step also processes everything that the step before it left. `call_soon` is that of the loop, for callbacks that
should let others run first.

Invariants: callbacks run in the order of their calls; the loop reports a callback that fails, and the others still run.
A chain must end: long work has to yield to the loop by `call_soon`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ottla.common.platform.clock import Scheduler


class EndOfTickScheduler:
    """A `Scheduler` with end-of-tick callbacks; users of one instance share its ends."""

    __slots__ = ("_due", "_scheduled", "call_later", "call_soon")

    def __init__(self, scheduler: Scheduler) -> None:
        self.call_soon = scheduler.call_soon
        self.call_later = scheduler.call_later
        self._due: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._scheduled = False

    def at_end_of_turn(self, callback: Callable[..., Any], *args: Any) -> None:
        """Run `callback(*args)` after earlier deferred callbacks, in this tick or at the beginning of the next."""
        self._due.append((callback, args))
        if not self._scheduled:
            self._scheduled = True
            self.call_soon(self._end)

    def _end(self) -> None:
        due = self._due
        try:
            while due:
                callback, args = due.popleft()
                callback(*args)
        finally:
            self._scheduled = False
            if due:
                self._scheduled = True
                self.call_soon(self._end)
