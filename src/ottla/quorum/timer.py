"""A timer for a deadline that moves: it fires at the earliest requested time, and is re-armed then."""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.platform.clock import Clock, Scheduler, TimerHandle

_SHORTEST_S = 0.001


class DeadlineTimer:
    """At most one callback of the loop is pending, however often the deadline moves."""

    __slots__ = ("_at", "_clock", "_handle", "_reached", "_scheduler")

    def __init__(self, clock: Clock, scheduler: Scheduler, reached: Callable[[], None]) -> None:
        """`reached` checks whether it is time, and arms again: a deadline that moved later is noticed only then."""
        self._clock = clock
        self._scheduler = scheduler
        self._reached = reached
        self._handle: TimerHandle | None = None
        self._at = 0.0

    def arm(self, deadline: float | None) -> None:
        """Fire at `deadline`, in seconds of the loop's clock, unless it fires before; never for None."""
        if deadline is None:
            return
        if self._handle is not None:
            if self._at <= deadline:
                return
            self._handle.cancel()
        self._at = deadline
        self._handle = self._scheduler.call_later(max(deadline - self._clock.monotonic(), _SHORTEST_S), self._ring)

    def cancel(self) -> None:
        """Cancel the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        self._reached()
