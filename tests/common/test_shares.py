"""Fair queue of work beyond its share: a turn ends by time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.common.platform.shares import TURN_S, LoopShares


class Loop:
    """A loop with ticks on demand, and a clock that only work advances."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[Callable[..., Any]] = []
        self.seen: list[str] = []
        self.shares = LoopShares(lambda: self.now, self)

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Any:
        self.due.append(callback)

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Any:
        raise AssertionError("no timer is needed")

    def work(self, name: str, seconds: float, times: int = 1) -> None:
        def run() -> None:
            self.seen.append(name)
            self.now += seconds
            if times > 1:
                self.work(name, seconds, times - 1)

        self.shares.add(run)

    def turn(self) -> list[str]:
        self.seen.clear()
        due, self.due = self.due, []
        for callback in due:
            callback()
        return list(self.seen)


def test_a_turn_ends_when_its_time_is_over() -> None:
    loop = Loop()
    for name in "abc":
        loop.work(name, TURN_S * 0.6, times=2)
    assert [loop.turn() for _ in range(3)] == [["a", "b"], ["c", "a"], ["b", "c"]]
    assert loop.turn() == []


def test_work_that_adds_itself_waits_for_the_next_turn() -> None:
    loop = Loop()
    loop.work("a", 0.0, times=3)
    assert [loop.turn() for _ in range(4)] == [["a"], ["a"], ["a"], []]


def test_cancelled_or_failed_work_does_not_stop_others() -> None:
    loop = Loop()
    loop.shares.add(lambda: loop.seen.append("cancelled")).cancel()

    def fail() -> None:
        raise ZeroDivisionError

    loop.shares.add(fail)
    loop.work("behind", 0.0)
    with pytest.raises(ZeroDivisionError):
        loop.turn()
    assert loop.turn() == ["behind"]
