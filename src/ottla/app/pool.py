"""A small thread pool for blocking system calls: fsync, cold reads.

Invariants: work does not run broker logic and does not touch state of the loop. `done` always runs on the loop, in its
own callback, in the order in which work is completed. Callers bound the queue: each connection and each log has at most
one piece of work here, and both are bounded by configuration.

Left out: `concurrent.futures` (its Future, lock and condition per call, and its import), and cancellation: work that
was started is completed.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

MAX_THREADS = 8
"""Enough to keep a disk's queue full; more threads would only wait for the same device."""

_Work = tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]


class ThreadPool:
    """Implements `ottla.common.platform.clock.BlockingPool` for one event loop. `submit` and `close` belong to the
    loop."""

    __slots__ = ("_closed", "_idle", "_loop", "_max_threads", "_queue", "_threads")

    def __init__(self, loop: asyncio.AbstractEventLoop, max_threads: int = MAX_THREADS) -> None:
        self._loop = loop
        self._max_threads = max_threads
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._closed = False

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `work()` in a thread, then `done(result, error)` on the loop. Raises RuntimeError after `close`."""
        if self._closed:
            raise RuntimeError("the pool is closed")
        self._queue.put((work, done))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._max_threads:
            thread = threading.Thread(target=self._run, name=f"ottla-pool-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Complete the submitted work and end the threads; blocks until then."""
        self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                return
            work, done = item
            try:
                result, error = work(), None
            except BaseException as caught:  # the submitter handles all errors, including SystemExit
                result, error = None, caught
            self._idle.release()
            try:
                self._loop.call_soon_threadsafe(done, result, error)
            except RuntimeError:
                return  # the loop is closed: the result is discarded
            # An idle thread must not keep the last result and its file alive.
            del item, work, done, result, error
