"""Steps that run in turns next to a log's owner: those of the cleaner's worker, and work in the pool."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Death(BaseException):
    """The process or the machine crashed, at an action of the disk."""


class Turns:
    """Turns of the worker's steps and of work in the pool; steps come first."""

    def __init__(self, pool) -> None:
        self.pool = pool
        self.steps: deque[Callable[[], None]] = deque()

    def take_one(self) -> bool:
        """Run one step; returns whether there was one."""
        if self.steps:
            self.steps.popleft()()
        elif self.pool.queue:
            self.pool.run_one()
        else:
            return False
        return True

    def take_all(self) -> None:
        while self.take_one():
            pass
