"""Interfaces of time, randomness and deferred work.

Every module above `common` that needs one of these takes it as a parameter, so that the whole broker also runs on a
virtual clock (`simulation`). The real implementations are in `ottla.app`; an asyncio loop satisfies `Scheduler`
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Wall time for stored timestamps, monotonic time for durations."""

    def time_ms(self) -> int:
        """Milliseconds since the Unix epoch; may step."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never steps back."""
        ...


class Rng(Protocol):
    """The only source of randomness of the broker."""

    def random_bytes(self, count: int) -> bytes:
        """Return `count` unpredictable bytes."""
        ...

    def randrange(self, stop: int) -> int:
        """Return a uniform integer in [0, stop)."""
        ...


class TimerHandle(Protocol):
    """Handle returned by `call_later`; `cancel` is idempotent."""

    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """Timers of an event loop for deferred work."""

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> TimerHandle: ...

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> TimerHandle:
        """Run `callback(*args)` on the loop after `delay` seconds."""
        ...


class BlockingPool(Protocol):
    """Small bounded pool for system calls that block and release the GIL (fsync, cold reads).

    The submitted function runs no broker logic; its result returns on the loop.
    """

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `work()` off the loop, then `done(result, error)` on it; exactly one of the two is meaningful."""
        ...
