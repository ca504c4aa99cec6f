"""Timers of one shard: named, replaceable, and run as write operations.

Every heartbeat moves a member's session timer. So moving a timer to a later time only stores the new deadline; the
loop's timer is rearmed when it fires early. The number of timers is the number of keys in use, which the shard's own
state bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ottla.common.errors import KafkaError
from ottla.common.platform.clock import Clock, Scheduler, TimerHandle
from ottla.coordinator.runtime.records import EMPTY_RESULT, CoordinatorResult

TimerOperation = Callable[[], CoordinatorResult[Any, Any]]
Submit = Callable[[TimerOperation, Callable[[Any, KafkaError | None], None]], None]
"""Runs an operation as a write on the timer's shard."""

RETRY_BACKOFF_MS = 500
"""Delay before a retry of a failed operation, as in Apache Kafka."""


class _Task:
    """The timer of one key."""

    __slots__ = ("due_s", "handle", "operation", "retry", "retry_backoff_ms", "wakes_s")

    def __init__(self, due_s: float, operation: TimerOperation, retry: bool, retry_backoff_ms: float) -> None:
        self.due_s = due_s
        self.operation = operation
        self.retry = retry
        self.retry_backoff_ms = retry_backoff_ms
        self.wakes_s = 0.0
        self.handle: TimerHandle | None = None


class CoordinatorTimer:
    """The timers of one shard, by key."""

    __slots__ = ("_clock", "_ended", "_scheduler", "_submit", "_tasks")

    def __init__(self, clock: Clock, scheduler: Scheduler, submit: Submit) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._submit = submit
        self._ended = False
        self._tasks: dict[str, _Task] = {}

    def schedule(
        self,
        key: str,
        delay_ms: float,
        operation: TimerOperation,
        *,
        retry: bool = True,
        retry_backoff_ms: float = RETRY_BACKOFF_MS,
    ) -> None:
        """Run `operation()` as a write operation in `delay_ms`; replaces the pending operation of `key`.

        With `retry` a failed operation runs again after `retry_backoff_ms`, unless the shard is closed or the key was
        scheduled meanwhile. That applies to all errors: NOT_COORDINATOR may also mean that the disk rejected an append.
        """
        now_s = self._clock.monotonic()
        due_s = now_s + delay_ms / 1000
        task = self._tasks.get(key)
        if task is not None and task.wakes_s <= due_s:
            task.due_s = due_s
            task.operation = operation
            task.retry = retry
            task.retry_backoff_ms = retry_backoff_ms
            return
        if task is not None and task.handle is not None:
            task.handle.cancel()
        task = _Task(due_s, operation, retry, retry_backoff_ms)
        self._tasks[key] = task
        self._arm(key, task, now_s)

    def schedule_if_absent(self, key: str, delay_ms: float, operation: TimerOperation) -> None:
        """Run `schedule` unless `key` is already scheduled."""
        if key not in self._tasks:
            self.schedule(key, delay_ms, operation)

    def cancel(self, key: str) -> None:
        """Cancel `key`; does nothing when it is not scheduled."""
        task = self._tasks.pop(key, None)
        if task is not None and task.handle is not None:
            task.handle.cancel()

    def cancel_all(self) -> None:
        """Cancel all timers permanently; the runtime calls this when the shard is closed."""
        self._ended = True
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            if task.handle is not None:
                task.handle.cancel()

    # --- internals ----------------------------------------------------------------------------------------------------

    def _arm(self, key: str, task: _Task, now_s: float) -> None:
        task.wakes_s = task.due_s
        task.handle = self._scheduler.call_later(max(0.0, task.due_s - now_s), self._fire, key, task)

    def _fire(self, key: str, task: _Task) -> None:
        if self._tasks.get(key) is not task:
            return
        now_s = self._clock.monotonic()
        if task.due_s > task.wakes_s and task.due_s > now_s:
            self._arm(key, task, now_s)
            return
        task.wakes_s = math.inf  # scheduling the key from now on replaces this task

        def operation() -> CoordinatorResult[Any, Any]:
            # The write may have waited for another one, which cancelled or replaced this timer.
            if self._tasks.get(key) is not task:
                return EMPTY_RESULT
            del self._tasks[key]
            try:
                return task.operation()
            except Exception as error:
                error.add_note(f"in the timer {key!r}")
                raise

        def done(_response: object, error: KafkaError | None) -> None:
            if error is not None and task.retry and not self._ended and key not in self._tasks:
                self.schedule(key, task.retry_backoff_ms, task.operation, retry_backoff_ms=task.retry_backoff_ms)

        self._submit(operation, done)
