"""Periodic steps of a running broker: retention, flushing, checkpoints, removal of deleted files.

Each step runs on the loop and hands its system calls to the pool where they may block. A step that fails is reported
and runs again at its next time: the broker goes on serving. Only a broken invariant goes on to the loop, which ends it.
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
"""Settings may say 0, or less where Apache Kafka has no lower bound; the loop is not to spend itself on that."""

_END = object()

T = TypeVar("T")


class PoolWriter(Generic[T]):
    """Writes what is due in the pool, so that no request waits for the disk; nothing while it still writes."""

    __slots__ = ("_due", "_in_flight", "_pool", "_write", "_writing", "_written")

    def __init__(
        self,
        due: Callable[[], T | None],
        write: Callable[[T], object],
        written: Callable[[T, BaseException | None], None],
        pool: BlockingPool,
        in_flight: InFlight,
    ) -> None:
        """`due` says on the loop what there is to write, nothing when it is false; `write` runs in the pool.

        `written` hears on the loop how that ended.
        """
        self._due = due
        self._write = write
        self._written = written
        self._pool = pool
        self._in_flight = in_flight
        self._writing = False

    def write_due(self) -> None:
        """Begin to write, if there is something; a step for `PeriodicSteps`."""
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
        """Run `step` every `interval_ms`, `MIN_INTERVAL_MS` at least, for the first time after that long.

        With `initial_delay_ms`, where that is shorter, for the first time after it. `name` shows in the log; the step
        that had it before runs no more.
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
        """As `add`, for what may be long: `begin` gives its short steps, which `work` does in slices of turns.

        It begins anew only when it is through.
        """
        under_way = False

        def steps() -> Iterator[None]:
            nonlocal under_way
            try:
                work_steps = begin()
                while name in self._timers and next(work_steps, _END) is not _END:  # none is done after a stop
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
        """Nothing runs any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
