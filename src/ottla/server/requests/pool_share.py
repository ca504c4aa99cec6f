"""A share of the pool for computing work, so that the rest stays free for work that waits for the disk.

Decompression occupies its thread for as long as a client's bytes require. If it could take all threads, producers would
wait for their fsync behind it; if large batches could take all of this share, small ones would wait behind them. So a
slice of work is short, about `off_loop.BYTES_PER_TURN` decompressed bytes. Work that turns out to be larger is
submitted as long work, of which one piece runs at a time.

Fair by arrival, since a connection has one piece of work here at a time: further work queues behind the waiting
connections. A producer of small batches waits for one slice of each connection at most, whatever those send.

Not supported: cancellation. Submitted work runs, as in the pool itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.common.platform.clock import BlockingPool

T = TypeVar("T")

COMPUTE_THREADS = 2
"""Maximum of computing threads; the pool has more (`ottla.app.pool.MAX_THREADS`)."""

_Work = tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]


class PoolShare:
    """A `BlockingPool` that runs at most `limit` pieces of work in another one, and fewer long ones.

    Used on the loop only, like that pool.
    """

    __slots__ = ("_limit", "_long", "_long_running", "_pool", "_running", "_short", "long")

    def __init__(self, pool: BlockingPool, limit: int = COMPUTE_THREADS) -> None:
        """`limit` is at least 2: one thread may run long work, the others run short work."""
        self._pool = pool
        self._limit = limit
        self._running = 0
        self._long_running = False
        self._short: deque[_Work] = deque()
        self._long: deque[_Work] = deque()
        self.long: BlockingPool = _LongWork(self._submit_long)
        """The pool for long work."""

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run the short `work()` off the loop in its turn, then `done(result, error)` on the loop."""
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
