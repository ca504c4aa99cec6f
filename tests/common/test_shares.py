"""Queue of long work: a tick ends by time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.common.platform.shares import TICK_S, FairQueue


class Loop:
    """A loop with ticks on demand, and a clock that only work advances."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[Callable[..., Any]] = []
        self.seen: list[str] = []
        self.queue = FairQueue(lambda: self.now, self)

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

        self.queue.add(run)

    def tick(self) -> list[str]:
        self.seen.clear()
        due, self.due = self.due, []
        for callback in due:
            callback()
        return list(self.seen)


def test_tick_ends_when_its_time_is_over() -> None:
    loop = Loop()
    for name in "abc":
        loop.work(name, TICK_S * 0.6, times=2)
    assert [loop.tick() for _ in range(3)] == [["a", "b"], ["c", "a"], ["b", "c"]]
    assert loop.tick() == []


def test_work_between_ticks_shares_the_time_of_one() -> None:
    loop = Loop()
    loop.queue.begin()
    loop.now += TICK_S * 0.6
    loop.queue.begin()
    assert not loop.queue.is_over()
    loop.now += TICK_S * 0.6
    assert loop.queue.is_over()
    loop.tick()
    loop.queue.begin()
    assert not loop.queue.is_over()


def test_work_that_adds_itself_waits_for_the_next_tick() -> None:
    loop = Loop()
    loop.work("a", 0.0, times=3)
    assert [loop.tick() for _ in range(4)] == [["a"], ["a"], ["a"], []]


def test_cancelled_or_failed_work_does_not_stop_others() -> None:
    loop = Loop()
    loop.queue.add(lambda: loop.seen.append("cancelled")).cancel()

    def fail() -> None:
        raise ZeroDivisionError

    loop.queue.add(fail)
    loop.work("behind", 0.0)
    with pytest.raises(ZeroDivisionError):
        loop.tick()
    assert loop.tick() == ["behind"]
