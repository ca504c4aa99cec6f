"""An event loop with virtual time: when no callback is due, the clock jumps to the next timer.

`SimLoop` implements the part of an asyncio loop that the broker and the simulated clients use (callbacks, timers,
futures, tasks) and satisfies `ottla.common.platform.clock.Scheduler`. Callbacks that are due at the same time run in
scheduling order, so a run is a function of its seed. An exception that leaves a callback ends the run: a real loop
would only log it, here it is a finding.

`Process` is the part of the loop that a simulated process may use: once killed, none of its callbacks runs.

Not included: sockets, threads, signals, subprocesses, and the run time of code, which is zero.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, cast

from simulation.rng import SimRng

T = TypeVar("T")

START_MS = 1_700_000_000_000
"""Wall time at the start of every run."""
MAX_EVENTS_AT_ONCE = 100_000
"""Callbacks without a step of virtual time after which the loop reports a livelock."""
POOL_START_S = (0.00002, 0.002)
POOL_RESULT_S = (0.00001, 0.0005)
"""Limits of the time until a piece of work gets a thread, and until its result gets to the loop."""
POOL_SLOW_CHANCE = 0.02
POOL_SLOW_FACTOR = 100


class Livelock(Exception):
    """Callbacks schedule one another while time does not advance."""


class ProcessKilled(BaseException):
    """Raised out of a disk operation in which the process dies; unwinds its stack down to the loop."""


class SimHandle:
    """A scheduled callback and its time; satisfies `TimerHandle`."""

    __slots__ = ("_args", "_callback", "_context", "_when")

    def __init__(
        self, when: float, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self._when = when
        self._callback: Callable[..., Any] | None = callback
        self._args = args
        self._context = context

    def when(self) -> float:
        """Virtual time at which it is due."""
        return self._when

    def cancelled(self) -> bool:
        """Whether it was cancelled or has run."""
        return self._callback is None

    def cancel(self) -> None:
        """Idempotent."""
        self._callback = None
        self._args = ()

    def run(self) -> bool:
        """Run it, once; returns whether it was still pending."""
        callback, args = self._callback, self._args
        if callback is None:
            return False
        self._callback, self._args = None, ()
        if self._context is None:
            callback(*args)
        else:
            self._context.run(callback, *args)
        return True


class SimLoop:
    """The one loop of a simulation; asyncio accepts it as an event loop."""

    def __init__(self) -> None:
        self._now = 0.0
        self._queue: list[tuple[float, int, SimHandle]] = []
        self._sequence = 0
        self._closed = False
        self._running = False
        self.failures: list[BaseException] = []
        """Errors that asyncio would only log: failed tasks without a waiter."""
        self.events = 0
        """Number of callbacks that ran."""

    # -- Scheduler

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._now

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> SimHandle:
        """Run `callback(*args)` at `when`, or now if that has passed."""
        handle = SimHandle(when if when > self._now else self._now, callback, args, context)
        self.schedule(handle)
        return handle

    def schedule(self, handle: SimHandle) -> None:
        """Run `handle` when it is due, after all that are due at that time already."""
        self._sequence += 1
        heapq.heappush(self._queue, (handle._when, self._sequence, handle))

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> SimHandle:
        """Run `callback(*args)` after `delay` virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> SimHandle:
        """Run `callback(*args)` after everything that is due now."""
        handle = SimHandle(self._now, callback, args, context)
        self.schedule(handle)
        return handle

    # -- running

    def run_until(self, end_s: float, stop: Callable[[], bool] = lambda: False) -> bool:
        """Run callbacks up to `end_s`, or until `stop()`; returns whether `stop` ended it.

        Raises the exception of a callback, and Livelock.
        """
        previous = asyncio._get_running_loop()
        asyncio._set_running_loop(self.as_asyncio())
        self._running = True
        queue, failures, pop = self._queue, self.failures, heapq.heappop
        at_once = 0
        try:
            while True:
                if failures:
                    raise failures.pop(0)
                if stop():
                    return True
                if not queue or queue[0][0] > end_s:
                    self._now = max(self._now, end_s)
                    return False
                when, _, handle = pop(queue)
                if when > self._now:
                    self._now = when
                    at_once = 0
                else:
                    at_once += 1
                    if at_once > MAX_EVENTS_AT_ONCE:
                        raise Livelock(f"{at_once} callbacks at {self._now:.6f} s")
                self.events += handle.run()
        finally:
            self._running = False
            asyncio._set_running_loop(previous)

    def is_running(self) -> bool:
        """Whether `run_until` is running."""
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Drop everything that was scheduled."""
        self._closed = True
        self._queue.clear()

    def get_debug(self) -> bool:
        return False

    # -- futures and tasks

    def as_asyncio(self) -> asyncio.AbstractEventLoop:
        """For asyncio's functions, which require a full loop and use only the parts implemented here."""
        return cast(asyncio.AbstractEventLoop, self)

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self.as_asyncio())

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """A task of this loop."""
        return asyncio.Task(coro, loop=self.as_asyncio(), name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An unretrieved exception ends the run."""
        error = context.get("exception")
        if error is not None:
            self.failures.append(error)


class SimClock:
    """Implements `ottla.common.platform.clock.Clock` on virtual time."""

    __slots__ = ("_loop", "monotonic", "skew_ms")

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.monotonic = loop.time
        self.skew_ms = 0
        """Added to wall time; may change while the process runs."""

    def time_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return START_MS + int(self._loop.time() * 1000) + self.skew_ms


class ProcessHandle(SimHandle):
    """A callback of a process; can be cancelled until it runs, also while the process is paused."""

    __slots__ = ("_process",)

    def __init__(self, when: float, callback: Callable[..., Any], args: tuple[Any, ...], process: Process) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._process = process

    def run(self) -> bool:
        """Run it as `process`, unless that is dead; later if it is paused."""
        callback, args, process = self._callback, self._args, self._process
        if callback is None:
            return False
        if process.paused is not None and process.alive:
            process.paused.append((self.run, ()))
            return True
        self._callback, self._args = None, ()
        if process.alive:
            try:
                callback(*args)
            except ProcessKilled:
                process.kill()
        return True


class Process:
    """One run of a simulated process: a Scheduler and a BlockingPool that end with it."""

    __slots__ = ("_loop", "_rng", "alive", "on_death", "paused", "pool_delay_s")

    def __init__(self, loop: SimLoop, rng: SimRng) -> None:
        self._loop = loop
        self._rng = rng
        self.paused: list[tuple[Callable[..., Any], tuple[Any, ...]]] | None = None
        """Callbacks that became due since it was paused, in that order."""
        self.alive = True
        self.on_death: Callable[[], None] = lambda: None
        self.pool_delay_s = 0.0
        """Maximum additional delay of work for a thread."""

    def kill(self) -> None:
        """None of its callbacks runs from now on; idempotent."""
        if self.alive:
            self.alive = False
            self.on_death()

    def pause(self) -> None:
        """Like SIGSTOP: no callback runs, time advances. Idempotent."""
        if self.paused is None:
            self.paused = []

    def resume(self) -> None:
        """Like SIGCONT: callbacks that became due meanwhile run now, in order."""
        waiting, self.paused = self.paused, None
        for callback, args in waiting or ():
            self.call_soon(callback, *args)

    def run(self, callback: Callable[..., Any], *args: Any) -> None:
        """Run `callback` as this process, if it lives; it may die in it. Later if it is paused."""
        if not self.alive:
            return
        if self.paused is not None:
            self.paused.append((callback, args))
            return
        try:
            callback(*args)
        except ProcessKilled:
            self.kill()

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> ProcessHandle:
        """See `Scheduler`."""
        return self.call_later(0.0, callback, *args)

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> ProcessHandle:
        """See `Scheduler`."""
        handle = ProcessHandle(self._loop.time() + max(delay, 0.0), callback, args, self)
        self._loop.schedule(handle)
        return handle

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """See `BlockingPool`. The work takes effect at some time before `done` is called; the process may die in
        between."""
        factor = POOL_SLOW_FACTOR if self._rng.chance(POOL_SLOW_CHANCE) else 1
        start_s = self._rng.uniform(*POOL_START_S) * factor
        if self.pool_delay_s:
            start_s += self._rng.uniform(0, self.pool_delay_s)
        self.call_later(start_s, self._work, work, done)

    def _work(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except ProcessKilled:
            raise
        except BaseException as caught:  # the submitter handles the error
            error = caught
        self.call_later(self._rng.uniform(*POOL_RESULT_S), done, result, error)
