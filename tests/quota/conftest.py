"""A clock moved by the test."""

from __future__ import annotations

import pytest


class Clock:
    """Seconds."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def advance(self, seconds: float) -> float:
        self.now_s += seconds
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()
