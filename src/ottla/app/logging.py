"""Logging to standard error: text or JSON lines, with a limit on what clients can cause.

A record with `extra=RATE_LIMITED` (`ottla.common.logs`) is shown at most `BURST` times in `WINDOW_S` seconds for each
place in the code; the next one that is shown says how many were not.
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

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

BURST = 10
WINDOW_S = 10.0


class RateLimiter(logging.Filter):
    """Lets a few of the marked records through. The number of places is the number of log calls in the code."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._windows: dict[tuple[str, int], _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to show `record`; adds the number of those not shown before it."""
        if not getattr(record, "rate_limited", False):
            return True
        window = self._windows.setdefault((record.name, record.lineno), _Window())
        now = self._monotonic()
        if now - window.started >= WINDOW_S:
            if window.suppressed:
                record.msg = f"{record.msg} ({window.suppressed} more like this were not shown)"
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
        import json  # here, since text is the usual format and each import delays the start

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
    """Standard error may be a closed pipe: then there is nobody to tell."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore it."""


def write_audit_log(path: str, log_format: str) -> None:
    """Append what the authorizer tells to a file, all of it and there alone. Raises OperatorError.

    A file that is moved away, as by logrotate, is opened anew.
    """
    from logging.handlers import WatchedFileHandler  # here, since most starts have none

    try:
        opened = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666
        )  # a pipe without a reader is an error so
        try:
            handler = WatchedFileHandler(path, encoding="utf-8")
        finally:
            os.close(opened)
    except OSError as error:
        raise OperatorError(
            f"the audit log {path} can't be opened: {error.strerror}; choose another place with --audit-log"
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
    """Send everything from `level` on to `stream` (standard error). Only the process entry calls this."""
    handler = _QuietHandler(stream or sys.stderr)
    handler.setFormatter(_formatter(log_format))
    handler.addFilter(RateLimiter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def logs_json() -> bool:
    """Whether this process writes its log as JSON."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)
