"""Outage messages of a client that waits for a cluster: one at the start, one at the end."""

from __future__ import annotations

import time
from collections.abc import Callable

REPORT_AFTER_S = 1.0
"""Shorter outages are leader changes, which are not reported."""

Notify = Callable[[str], None]


class OutageReporter:
    """An outage from the first failure to the next success; `notify` gets a message at the start and the end."""

    def __init__(self, notify: Notify | None) -> None:
        self._notify = notify
        self._since: float | None = None
        self._reported = False

    @property
    def lasts(self) -> bool:
        """True if the latest event was a failure."""
        return self._since is not None

    def failed(self, reason: str) -> None:
        """Record a failure of the cluster that may be temporary."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        elif not self._reported and now - self._since >= REPORT_AFTER_S:
            self._reported = True
            if self._notify is not None:
                self._notify(f"the cluster does not respond, retrying: {reason}")

    def ended(self) -> None:
        """Record a response of the cluster."""
        if self._since is not None and self._reported and self._notify is not None:
            self._notify(f"the cluster responds again after {time.monotonic() - self._since:.0f} s")
        self._since = None
        self._reported = False
