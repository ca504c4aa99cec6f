"""Disk errors of one data directory.

An error other than lack of space or descriptors takes the directory offline: `offline` has the reason, appends fail
with KAFKA_STORAGE_ERROR, reads continue as far as the disk permits.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from ottla.common.platform.clock import Clock
from ottla.storage.segment.health import TRANSIENT_ERRORS

logger = logging.getLogger(__name__)
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_ERROR_LOG_INTERVAL_MS = 10_000
FULL_REPORT_MS = 30_000
"""Time after an error of a full disk in which the directory counts as full: writes are retried more often."""


class DirectoryHealth:
    """State of one directory's disk."""

    __slots__ = (
        "_clock",
        "_full_ms",
        "_last_error_log_ms",
        "_on_offline",
        "_path",
        "_unlogged_errors",
        "is_served",
        "offline",
    )

    def __init__(self, path: str, clock: Clock, on_offline: Callable[[OSError], None]) -> None:
        """`on_offline` is called once, on the loop, after an error that stops all appends to a log until a restart."""
        self._path = path
        self._clock = clock
        self._on_offline = on_offline
        self.offline: OSError | None = None
        self.is_served = True
        """Whether its logs are in use: after an error too, until other brokers lead them (`LogDirectory.abandon`)."""
        self._last_error_log_ms = 0
        self._unlogged_errors = 0
        self._full_ms: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether a write failed lately because the disk or a quota is full, with whatever is free now."""
        return self._full_ms is not None and 0 <= self._clock.time_ms() - self._full_ms < FULL_REPORT_MS

    @property
    def refusal(self) -> str:
        """Reason why it accepts no new log, for an error message."""
        return "" if self.offline is None else f"{self._path} is offline: {self.offline.strerror or self.offline}"

    def note_error(self, error: OSError, action: str, *, lasting: bool = False) -> None:
        """Log an error, rate-limited, and go offline unless only space or descriptors are lacking."""
        lasting = lasting or error.errno not in TRANSIENT_ERRORS
        now = self._clock.time_ms()
        if error.errno in FULL:
            self._full_ms = now
        if (lasting and self.offline is None) or now - self._last_error_log_ms >= _ERROR_LOG_INTERVAL_MS:
            logger.error(
                "%s failed in %s: %s%s%s%s",
                action,
                self._path,
                error.strerror or error,
                "; free space there, and appends resume automatically" if error.errno in FULL and not lasting else "",
                f" ({error.filename})" if error.filename else "",
                f" (and {self._unlogged_errors} more errors)" if self._unlogged_errors else "",
            )
            self._last_error_log_ms = now
            self._unlogged_errors = 0
        else:
            self._unlogged_errors += 1
        if lasting and self.offline is None:
            self.offline = error
            self._on_offline(error)
