"""What happened in a run: a hash over everything, so that two runs can be compared, and the last lines in words.

Every frame that is delivered, every fault and every decision of a member goes into the hash. The words are for the
person who reads a failing seed; they are made only when somebody reads them.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from typing import Protocol

HISTORY_LINES = 20_000
"""Lines that are kept; a violation is rarely explained by what was longer ago."""


class HasTime(Protocol):
    """What the lines are dated by: the simulated loop, or a real clock."""

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
        """Seconds, by what the lines are dated by."""
        return self._loop.time()

    def note(self, who: str, what: str) -> None:
        """Something that a reader wants to know."""
        now = self._loop.time()
        self._lines.append((now, who, what))
        self._hash.update(f"{now!r} {who} {what}\n".encode())

    def remark(self, who: str, what: str) -> None:
        """Something for the reader alone, such as a log line, whose text may differ between two runs."""
        self._lines.append((self._loop.time(), who, what))

    def count(self, what: bytes) -> None:
        """Something that only counts for the comparison of two runs."""
        self._hash.update(b"%r %b" % (self._loop.time(), what))

    def digest(self) -> str:
        """The hash of everything so far."""
        return self._hash.hexdigest()

    def lines(self, last: int = HISTORY_LINES) -> list[str]:
        """The newest lines, oldest first."""
        chosen = list(self._lines)[-last:]
        return [f"{when:11.6f}  {who:<12} {what}" for when, who, what in chosen]


class LogLines(logging.Handler):
    """The nodes' warnings, as lines of the history."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.WARNING)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        self._trace.remark("log", self.format(record))
