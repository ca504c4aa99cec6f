"""Rounds of a step: a request during a step starts another round after it, never a nested step."""

from __future__ import annotations

from collections.abc import Callable


class Rounds:
    """Runs a step again as long as another round is requested."""

    __slots__ = ("_again", "_running", "_step")

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        self._running = False
        self._again = False

    def ask(self) -> None:
        """Request another round."""
        self._again = True

    def run(self) -> None:
        """Run the step, and again while requested; within a step this only requests a round. Raises the step's
        error."""
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
