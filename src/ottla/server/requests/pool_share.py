"""A part of the pool for work that computes, so that the rest stays free for work that waits for the disk.

Decompression takes its thread for as long as a client's bytes want. If it could take all of them, producers would wait
for their fsync behind it; if large batches could take all of this part, small ones would wait behind them. So a turn is
short, `off_loop.BYTES_PER_TURN` of decompressed bytes or so, and whoever finds that its next piece of work is larger
submits it as a long one, of which one runs at a time.

Fair by arrival, since a connection has one piece of work here at a time: whoever has more to do comes again after those
who wait. A producer of small batches waits for one turn of each connection at most, whatever those send.

Left out: cancelling. What was submitted runs, as in the pool itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.common.platform.clock import BlockingPool

T = TypeVar("T")

COMPUTE_THREADS = 2
"""Threads that may compute at a time; the pool has more than that (`ottla.app.pool.MAX_THREADS`)."""

_Work = tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]


class PoolShare:
    """A `BlockingPool` that keeps at most `limit` pieces of work in another one, and fewer long ones.

    Belongs to the loop, as that does.
    """

    __slots__ = ("_limit", "_long", "_long_running", "_pool", "_running", "_short", "long")

    def __init__(self, pool: BlockingPool, limit: int = COMPUTE_THREADS) -> None:
        """`limit` is at least 2: one piece of work may be long, the others are short."""
        self._pool = pool
        self._limit = limit
        self._running = 0
        self._long_running = False
        self._short: deque[_Work] = deque()
        self._long: deque[_Work] = deque()
        self.long: BlockingPool = _LongWork(self._submit_long)
        """Where work is submitted that takes long."""

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `work()`, which is short, off the loop once its turn has come, then `done(result, error)` on the loop."""
        self._short.append((work, done))
        self._start_next()

    def _submit_long(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._long.append((work, done))
        self._start_next()

    def _start_next(self) -> None:
        if self._running >= self._limit:
            return
        if self._long and not self._long_running:
            self._long_running = True
            self._start(*self._long.popleft(), True)
        elif self._short:
            self._start(*self._short.popleft(), False)

    def _start(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None], long: bool) -> None:
        def finished(result: T | None, error: BaseException | None) -> None:
            self._running -= 1
            if long:
                self._long_running = False
            self._start_next()
            done(result, error)

        self._running += 1
        self._pool.submit(work, finished)


class _LongWork:
    """The `BlockingPool` for long pieces of work."""

    __slots__ = ("submit",)

    def __init__(
        self, submit: Callable[[Callable[[], Any], Callable[[Any, BaseException | None], None]], None]
    ) -> None:
        self.submit = submit
