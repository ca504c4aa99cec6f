"""Logging to standard error in text or JSON lines, with a rate limit on records that clients can cause.

A record with `extra=RATE_LIMITED` (`ottla.common.logs`) is logged at most `BURST` times in `WINDOW_S` seconds for each
place in the code; the next one that is logged contains the number of suppressed ones.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from ottla.common.errors import OperatorError
from ottla.common.logs import AUDIT_LOGGER

BURST = 10
WINDOW_S = 10.0


class RateLimiter(logging.Filter):
    """Limits the marked records of each log call. Its state is bounded by the number of log calls in the code."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._windows: dict[tuple[str, int], _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """True if `record` is to be logged; adds the number of suppressed records before it."""
        if not getattr(record, "rate_limited", False):
            return True
        window = self._windows.setdefault((record.name, record.lineno), _Window())
        now = self._monotonic()
        if now - window.started >= WINDOW_S:
            if window.suppressed:
                record.msg = f"{record.msg} ({window.suppressed} similar messages suppressed)"
            window.started = now
            window.shown = window.suppressed = 0
        if window.shown < BURST:
            window.shown += 1
            return True
        window.suppressed += 1
        return False


class _Window:
    __slots__ = ("shown", "started", "suppressed")

    def __init__(self) -> None:
        self.started = float("-inf")
        self.shown = 0
        self.suppressed = 0


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line for `record`."""
        import json  # imported here: text is the default, and imports delay the start

        entry = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)

    converter = staticmethod(time.gmtime)


class _QuietHandler(logging.StreamHandler[TextIO]):
    """Standard error may be a closed pipe: then errors are ignored."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore it."""


def write_audit_log(path: str, log_format: str) -> None:
    """Append all records of the authorizer to a file, and only there. Raises OperatorError.

    The file is reopened after it was moved, for example by logrotate.
    """
    from logging.handlers import WatchedFileHandler  # imported here: most starts have no audit log

    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666)  # fail for a pipe without a reader
        try:
            handler = WatchedFileHandler(path, encoding="utf-8")
        finally:
            os.close(opened)
    except OSError as error:
        raise OperatorError(
            f"the audit log {path} can't be opened: {error.strerror}: choose another path with --audit-log"
        ) from error
    handler.setFormatter(_formatter(log_format))
    audit = logging.getLogger(AUDIT_LOGGER)
    audit.handlers[:] = [handler]
    audit.setLevel(logging.INFO)
    audit.propagate = False


def _formatter(log_format: str) -> logging.Formatter:
    if log_format == "json":
        return JsonFormatter()
    return logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")


def configure_logging(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Log records from `level` to `stream` (standard error). Only the process entry calls this."""
    handler = _QuietHandler(stream or sys.stderr)
    handler.setFormatter(_formatter(log_format))
    handler.addFilter(RateLimiter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def logs_json() -> bool:
    """Whether this process writes its log as JSON."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)
