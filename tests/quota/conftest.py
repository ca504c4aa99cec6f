"""A clock that the test moves."""

from __future__ import annotations

import pytest


class Clock:
    """Seconds."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def go_on(self, seconds: float) -> float:
        self.now_s += seconds
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()
