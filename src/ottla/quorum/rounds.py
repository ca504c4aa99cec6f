"""Rounds of one step: what happens while a step runs is served by another round of it, and by no step within a step."""

from __future__ import annotations

from collections.abc import Callable


class Rounds:
    """Runs a step again as long as it was asked for meanwhile."""

    __slots__ = ("_again", "_running", "_step")

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        self._running = False
        self._again = False

    def ask(self) -> None:
        """There is something to do for another round."""
        self._again = True

    def run(self) -> None:
        """Run the step, and again while it is asked for; within a step this only asks. Raises what the step does."""
        self._again = True
        if self._running:
            return
        self._running = True
        try:
            while self._again:
                self._again = False
                self._step()
        finally:
            self._running = False
