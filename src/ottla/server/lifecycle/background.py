"""Periodic steps of a running broker: retention, flushing, checkpoints, removal of deleted files.

Each step runs on the loop and submits blocking system calls to the pool. A failing step is reported and runs again at
its next time: the broker continues to serve. Only a broken invariant is raised to the loop, which ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from ottla.common.errors import InvariantError, KafkaError
from ottla.common.platform.clock import BlockingPool, Scheduler, TimerHandle
from ottla.coordinator.runtime.slices import SlicedWork
from ottla.server.requests.failures import Failures
from ottla.server.requests.in_flight import InFlight

MIN_INTERVAL_MS = 100
"""Lower bound of intervals: settings may be 0, or negative where Apache Kafka has no bound."""

_END = object()

T = TypeVar("T")


class PoolWriter(Generic[T]):
    """Writes due data in the pool, so that no request waits for the disk; one write at a time."""

    __slots__ = ("_due", "_in_flight", "_pool", "_write", "_writing", "_written")

    def __init__(
        self,
        due: Callable[[], T | None],
        write: Callable[[T], object],
        written: Callable[[T, BaseException | None], None],
        pool: BlockingPool,
        in_flight: InFlight,
    ) -> None:
        """`due` returns on the loop the data to write, falsy for none; `write` runs in the pool.

        `written` is called on the loop with the result.
        """
        self._due = due
        self._write = write
        self._written = written
        self._pool = pool
        self._in_flight = in_flight
        self._writing = False

    def write_due(self) -> None:
        """Start writing, if data is due; a step for `PeriodicSteps`."""
        if self._writing:
            return
        due = self._due()
        if not due:
            return
        self._writing = True

        def ended(_: object, error: BaseException | None) -> None:
            self._writing = False
            self._written(due, error)
            self._in_flight.end()

        self._in_flight.begin()
        self._pool.submit(lambda: self._write(due), ended)


class PeriodicSteps:
    """Owner of the broker's timers."""

    __slots__ = ("_failures", "_scheduler", "_timers")

    def __init__(self, scheduler: Scheduler, failures: Failures) -> None:
        self._scheduler = scheduler
        self._failures = failures
        self._timers: dict[str, TimerHandle] = {}

    def add(
        self, name: str, interval_ms: int, step: Callable[[], object], *, initial_delay_ms: int | None = None
    ) -> None:
        """Run `step` every `interval_ms`, `MIN_INTERVAL_MS` at least, for the first time after that interval.

        With a shorter `initial_delay_ms`, for the first time after it. `name` appears in the log; it replaces an
        earlier step of that name.
        """
        interval_s = max(interval_ms, MIN_INTERVAL_MS) / 1000
        first_s = interval_s if initial_delay_ms is None else min(interval_s, initial_delay_ms / 1000)

        def run() -> None:
            self._timers[name] = self._scheduler.call_later(interval_s, run)
            try:
                step()
            except (KafkaError, OSError) as error:
                self._failures.warn(name, str(error))
            except InvariantError:
                raise
            except Exception as error:
                self._failures(name, error)

        before = self._timers.get(name)
        if before is not None:
            before.cancel()
        self._timers[name] = self._scheduler.call_later(first_s, run)

    def add_sliced(
        self,
        name: str,
        interval_ms: int,
        begin: Callable[[], Iterator[object]],
        work: SlicedWork,
        *,
        initial_delay_ms: int | None = None,
    ) -> None:
        """Like `add`, for long work: `begin` returns its short steps, which `work` runs in slices of turns.

        It starts again only after its completion.
        """
        under_way = False

        def steps() -> Iterator[None]:
            nonlocal under_way
            try:
                work_steps = begin()
                while name in self._timers and next(work_steps, _END) is not _END:  # none runs after a stop
                    yield
            except (KafkaError, OSError) as error:
                self._failures.warn(name, str(error))
            except InvariantError:
                raise
            except Exception as error:
                self._failures(name, error)
            finally:
                under_way = False

        def step() -> None:
            nonlocal under_way
            if not under_way:
                under_way = True
                work.add(steps())

        self.add(name, interval_ms, step, initial_delay_ms=initial_delay_ms)

    def stop(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
