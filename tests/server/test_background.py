"""Periodic steps: how often they run, and what their failures do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.app.clock import SystemClock
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.coordinator.runtime.slices import SlicedWork
from ottla.server.lifecycle.background import MIN_INTERVAL_MS, PeriodicSteps
from ottla.server.requests.failures import Failures


class Timers:
    """A scheduler that runs its timers on the test's command."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], Any]]] = []

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Any:
        raise NotImplementedError

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Any:
        self.waiting.append((delay, callback))
        return self

    def cancel(self) -> None:
        self.waiting.clear()

    def run(self) -> float:
        """Run the next timer; returns its delay in seconds."""
        delay, callback = self.waiting.pop(0)
        callback()
        return delay


@pytest.mark.parametrize("interval_ms", [0, -1, -(1 << 63), 1])
def test_step_interval_has_a_lower_bound(interval_ms: int) -> None:
    timers, runs = Timers(), []
    PeriodicSteps(timers, Failures(SystemClock())).add("step", interval_ms, lambda: runs.append(1))
    assert [timers.run() * 1000 for _ in range(3)] == [MIN_INTERVAL_MS] * 3
    assert len(runs) == 3


@pytest.mark.parametrize(("initial_delay_ms", "first_s"), [(0, 0), (30_000, 30), (900_000, 300)])
def test_first_run_is_after_the_shorter_of_delay_and_interval(initial_delay_ms: int, first_s: float) -> None:
    timers = Timers()
    steps = PeriodicSteps(timers, Failures(SystemClock()))
    steps.add("step", 300_000, lambda: None, initial_delay_ms=initial_delay_ms)
    assert [timers.run() for _ in range(3)] == [first_s, 300, 300]


@pytest.mark.parametrize(
    "error", [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), OSError(5, "broken"), ValueError("defect")]
)
def test_a_step_that_fails_runs_again(error: Exception) -> None:
    timers, outcomes = Timers(), [error, None]

    def step() -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    PeriodicSteps(timers, Failures(SystemClock())).add("step", 1000, step)
    timers.run()
    timers.run()
    assert not outcomes


def test_a_broken_invariant_reaches_the_loop() -> None:
    timers = Timers()

    def step() -> None:
        raise InvariantError("planted")

    failures = Failures(SystemClock())
    PeriodicSteps(timers, failures).add("step", 1000, step)
    with pytest.raises(InvariantError):
        timers.run()
    assert failures.count == 0


class Turns(Timers):
    """Also lets turns of the loop pass, and its clock advances a second at each read."""

    def __init__(self) -> None:
        super().__init__()
        self.soon: list[Callable[[], Any]] = []
        self.now_s = 0.0

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Any:
        self.soon.append(callback)

    def time_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        self.now_s += 1
        return self.now_s

    def turn(self) -> None:
        self.soon.pop(0)()


def test_a_long_step_is_done_in_slices_and_never_twice_at_once() -> None:
    turns, done = Turns(), []
    steps = PeriodicSteps(turns, Failures(SystemClock()))

    def begin() -> Iterator[object]:
        for number in range(3):
            done.append(number)
            yield None

    steps.add_sliced("step", 1000, begin, SlicedWork(turns, turns))
    turns.run()
    turns.turn()
    assert done == [0]
    turns.run()  # due again, while it is still running
    for _ in range(3):
        turns.turn()
    assert (done, turns.soon) == ([0, 1, 2], [])
    turns.run()
    turns.turn()
    assert done == [0, 1, 2, 0]
    steps.stop()
    while turns.soon:
        turns.turn()
    assert done == [0, 1, 2, 0]
