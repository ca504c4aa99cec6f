"""End of a tick: deferred work runs together, before the loop polls for events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from ottla.common.platform.end_of_tick import EndOfTickScheduler


class Loop:
    """A real loop with its scheduler, and what happened in order."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda loop, context: self.seen.append(str(context["exception"])))
        self.scheduler = EndOfTickScheduler(self.loop)
        self.seen: list[str] = []

    def note(self, name: str, then: Callable[[], object] = lambda: None) -> None:
        self.seen.append(name)
        then()

    def turn(self) -> list[str]:
        """Return the calls of one tick of the loop."""
        self.seen.clear()
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
        return list(self.seen)


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.loop.close()


def test_chained_steps_run_in_one_tick_grouped_by_kind(loop: Loop) -> None:
    at_end, note = loop.scheduler.at_end_of_turn, loop.note

    def step(name: str) -> None:
        note(name, lambda: at_end(note, f"after {name}"))

    at_end(step, "a")
    at_end(step, "b")
    loop.loop.call_soon(note, "next")
    assert loop.turn() == ["a", "b", "after a", "after b", "next"]


def test_call_soon_runs_after_the_chain(loop: Loop) -> None:
    note = loop.note
    loop.scheduler.at_end_of_turn(note, "a", lambda: loop.scheduler.call_soon(note, "later"))
    loop.loop.call_soon(note, "next")
    assert loop.turn() == ["a", "next"]
    assert loop.turn() == ["later"]


def test_failing_callback_is_reported_and_others_run(loop: Loop) -> None:
    def fail() -> None:
        raise ValueError("a defect")

    loop.scheduler.at_end_of_turn(fail)
    loop.scheduler.at_end_of_turn(loop.note, "b")
    assert loop.turn() + loop.turn() == ["a defect", "b"]
    loop.scheduler.at_end_of_turn(loop.note, "c")
    assert loop.turn() == ["c"]
