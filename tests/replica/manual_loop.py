"""A scheduler with ticks and time on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Timer:
    def __init__(self, callback: Callable[[], Any]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualLoop:
    """A scheduler with ticks and time on demand."""

    def __init__(self) -> None:
        self.soon: list[Timer] = []
        self.later: list[Timer] = []

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Timer:
        self.soon.append(Timer(lambda: callback(*args)))
        return self.soon[-1]

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Timer:
        self.later.append(Timer(lambda: callback(*args)))
        return self.later[-1]

    def turn(self) -> int:
        due, self.soon = self.soon, []
        for timer in due:
            timer.callback()
        return len(due)

    def let_time_pass(self) -> None:
        due, self.later = self.later, []
        for timer in due:
            if not timer.cancelled:
                timer.callback()
