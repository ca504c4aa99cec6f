"""Counter of the broker's work in the pool: a stop waits for it, since its results change logs and files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ottla.common.platform.clock import BlockingPool

T = TypeVar("T")


class InFlight:
    """Counts work that is not completed. Used on the loop only."""

    __slots__ = ("_idle", "count")

    def __init__(self) -> None:
        self.count = 0
        self._idle: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Work is submitted to the pool."""
        self.count += 1

    def end(self) -> None:
        """Work has returned, and its callback is done."""
        self.count -= 1
        if self.count == 0 and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    async def drained(self) -> None:
        """Wait until nothing is in flight."""
        if self.count and self._idle is None:
            self._idle = asyncio.get_running_loop().create_future()
        if self._idle is not None:
            await self._idle


class TrackedPool:
    """A `BlockingPool` whose work counts as in flight until its callback is done."""

    __slots__ = ("_in_flight", "_pool")

    def __init__(self, pool: BlockingPool, in_flight: InFlight) -> None:
        self._pool = pool
        self._in_flight = in_flight

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """See `BlockingPool`."""

        def ended(result: T | None, error: BaseException | None) -> None:
            try:
                done(result, error)
            finally:
                self._in_flight.end()

        self._in_flight.begin()
        self._pool.submit(work, ended)
