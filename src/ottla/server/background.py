"""Periodic steps of a running broker: retention, flushing, checkpoints, removal of deleted files.

Each step runs on the loop and hands its system calls to the pool where they may block. A step that fails is reported
and runs again at its next time: the broker goes on serving.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.clock import Scheduler, TimerHandle
from ottla.common.errors import KafkaError
from ottla.server.failures import Failures


class PeriodicSteps:
    """Owner of the broker's timers."""

    __slots__ = ("_failures", "_scheduler", "_timers")

    def __init__(self, scheduler: Scheduler, failures: Failures) -> None:
        self._scheduler = scheduler
        self._failures = failures
        self._timers: dict[str, TimerHandle] = {}

    def add(self, name: str, interval_ms: int, step: Callable[[], object]) -> None:
        """Run `step` every `interval_ms`, for the first time after that long. `name` is unique and shows in the log."""
        interval_s = interval_ms / 1000

        def run() -> None:
            self._timers[name] = self._scheduler.call_later(interval_s, run)
            try:
                step()
            except (KafkaError, OSError) as error:
                self._failures.complain(name, str(error))
            except Exception as error:
                self._failures(name, error)

        self._timers[name] = self._scheduler.call_later(interval_s, run)

    def stop(self) -> None:
        """Nothing runs any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
