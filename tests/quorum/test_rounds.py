"""Rounds of a step, and the timer for a deadline that moves."""

from __future__ import annotations

import pytest

from ottla.quorum.rounds import Rounds
from ottla.quorum.timer import DeadlineTimer

from .conftest import FixedClock, StepScheduler


def test_nested_run_starts_another_round_afterwards() -> None:
    depth, deepest, steps = 0, 0, 0

    def step() -> None:
        nonlocal depth, deepest, steps
        depth += 1
        deepest, steps = max(deepest, depth), steps + 1
        if steps < 3:
            rounds.run()
            rounds.run()
        depth -= 1

    rounds = Rounds(step)
    rounds.run()
    assert (deepest, steps) == (1, 3)


def test_rounds_end_when_no_step_asks_for_another() -> None:
    steps: list[int] = []

    def step() -> None:
        steps.append(len(steps))
        if len(steps) < 4:
            rounds.ask()

    rounds = Rounds(step)
    rounds.run()
    assert steps == [0, 1, 2, 3]


def test_rounds_continue_after_a_failed_step() -> None:
    errors = [OSError("once")]
    steps: list[int] = []

    def step() -> None:
        if errors:
            raise errors.pop()
        steps.append(1)

    rounds = Rounds(step)
    with pytest.raises(OSError, match="once"):
        rounds.run()
    rounds.run()
    assert steps == [1]


def test_timer_fires_at_the_earliest_deadline() -> None:
    clock, scheduler, rung = FixedClock(), StepScheduler(), []
    timer = DeadlineTimer(clock, scheduler, lambda: rung.append(clock.monotonic()))
    now = clock.monotonic()
    timer.arm(None)
    assert scheduler.later == []
    timer.arm(now + 5.0)
    timer.arm(now + 9.0)
    assert [(delay, handle.cancelled) for delay, _, _, handle in scheduler.later] == [(5.0, False)]
    timer.arm(now + 2.0)
    assert [(delay, handle.cancelled) for delay, _, _, handle in scheduler.later] == [(5.0, True), (2.0, False)]
    scheduler.run_timers()
    assert len(rung) == 1
    timer.arm(now - 1.0)
    assert [delay for delay, *_ in scheduler.later] == [0.001], "one that passed is due at once, on the loop"
    timer.cancel()
    scheduler.run_timers()
    assert len(rung) == 1
