"""What is to be done before the loop looks for news.

One turn of a loop brings many requests. Work that they share (one append, one sweep) is put off to the end of the turn
by `at_end_of_turn`; what that work puts off in turn still belongs to the same end. So a chain of such steps, from a
decision to its last record, takes one turn and not one a step, however many requests the loop would read in between;
and each step finds together whatever the step before it left. `call_soon` is the loop's, for who is to let others go
first.

Invariants: first come, first done; a callback that fails is the loop's to report and hinders nobody else. A chain must
come to an end by itself: what may go on for long lets the loop go on by `call_soon`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ottla.common.platform.clock import Scheduler


class EndOfTickScheduler:
    """A `Scheduler` that also knows the end of a turn; those who share one share the ends."""

    __slots__ = ("_due", "_scheduled", "call_later", "call_soon")

    def __init__(self, scheduler: Scheduler) -> None:
        self.call_soon = scheduler.call_soon
        self.call_later = scheduler.call_later
        self._due: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._scheduled = False

    def at_end_of_turn(self, callback: Callable[..., Any], *args: Any) -> None:
        """Run `callback(*args)` behind what was put off before it, in this turn or at the beginning of the next."""
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
