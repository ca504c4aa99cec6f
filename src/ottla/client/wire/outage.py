"""What a client that waits for a cluster says about it: once that it is gone, and once that it is back."""

from __future__ import annotations

import time
from collections.abc import Callable

TELL_AFTER_S = 1.0
"""Shorter than that is a change of leaders, of which nobody needs to hear."""

Tell = Callable[[str], None]


class OutageReporter:
    """From the first failure to the first success after it; `tell` gets a sentence each time there is one."""

    def __init__(self, tell: Tell | None) -> None:
        self._tell = tell
        self._since: float | None = None
        self._told = False

    @property
    def lasts(self) -> bool:
        """Whether the latest that was heard was a failure."""
        return self._since is not None

    def failed(self, reason: str) -> None:
        """The cluster gave no answer, or one that may be better later."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        elif not self._told and now - self._since >= TELL_AFTER_S:
            self._told = True
            if self._tell is not None:
                self._tell(f"the cluster does not answer and is asked again and again: {reason}")

    def ended(self) -> None:
        """The cluster answered."""
        if self._since is not None and self._told and self._tell is not None:
            self._tell(f"the cluster answers again, after {time.monotonic() - self._since:.0f} s")
        self._since = None
        self._told = False
