"""A part of the pool for work that computes, so that the rest stays free for work that waits for the disk.

Decompression takes its thread for as long as a client's bytes want. If it could take all of them, producers would wait
for their fsync behind it. Fair by arrival: whoever has more to do comes again after those who wait.

Left out: cancelling. What was submitted runs, as in the pool itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.common.clock import BlockingPool

T = TypeVar("T")

COMPUTE_THREADS = 2
"""Threads that may compute at a time; the pool has more than that (`ottla.app.pool.MAX_THREADS`)."""


class PoolShare:
    """A `BlockingPool` that keeps at most `limit` pieces of work in another one; belongs to the loop, as that does."""

    __slots__ = ("_limit", "_pool", "_running", "_waiting")

    def __init__(self, pool: BlockingPool, limit: int = COMPUTE_THREADS) -> None:
        self._pool = pool
        self._limit = limit
        self._running = 0
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `work()` off the loop once its turn has come, then `done(result, error)` on the loop."""
        if self._running >= self._limit:
            self._waiting.append((work, done))
        else:
            self._start(work, done)

    def _start(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        def finished(result: T | None, error: BaseException | None) -> None:
            self._running -= 1
            if self._waiting:
                self._start(*self._waiting.popleft())
            done(result, error)

        self._running += 1
        self._pool.submit(work, finished)
