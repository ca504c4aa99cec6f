"""History of a run: a hash over all events, to compare two runs, and the last lines as text.

Every delivered frame, every fault and every decision of a member is hashed. The text is for the reader of a failing
seed; it is formatted only on output.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from typing import Protocol

HISTORY_LINES = 20_000
"""Number of retained lines; older events rarely explain a violation."""


class HasTime(Protocol):
    """The clock of the lines: the simulated loop, or a real clock."""

    def time(self) -> float:
        """Seconds."""


class Trace:
    """One run's history."""

    __slots__ = ("_hash", "_lines", "_loop")

    def __init__(self, loop: HasTime) -> None:
        self._loop = loop
        self._hash = hashlib.blake2b(digest_size=12)
        self._lines: deque[tuple[float, str, str]] = deque(maxlen=HISTORY_LINES)

    def time(self) -> float:
        """Seconds, by the clock of the lines."""
        return self._loop.time()

    def note(self, source: str, what: str) -> None:
        """Add an event for hash and text."""
        now = self._loop.time()
        self._lines.append((now, source, what))
        self._hash.update(f"{now!r} {source} {what}\n".encode())

    def remark(self, source: str, what: str) -> None:
        """Add a line for the text only, such as a log line, which may differ between two runs."""
        self._lines.append((self._loop.time(), source, what))

    def count(self, what: bytes) -> None:
        """Add an event for the hash only."""
        self._hash.update(b"%r %b" % (self._loop.time(), what))

    def digest(self) -> str:
        """The hash of everything so far."""
        return self._hash.hexdigest()

    def lines(self, last: int = HISTORY_LINES) -> list[str]:
        """The newest lines, oldest first."""
        chosen = list(self._lines)[-last:]
        return [f"{when:11.6f}  {source:<12} {what}" for when, source, what in chosen]


class LogLines(logging.Handler):
    """The nodes' warnings, as lines of the history."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.WARNING)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        self._trace.remark("log", self.format(record))
