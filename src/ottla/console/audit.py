"""Audit log: one line of JSON for each change, and for each read of records.

A line has the time, the user, the address of the browser, the page, the resource and the outcome; never a record, a
password or a token. Control characters are escaped, since JSON escapes them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from ottla.common.errors import OperatorError
from ottla.console.formats import moment

AUDIT_LOGGER = "ottla.console.audit"
MAX_FIELD_CHARS = 1_000


def write_audit_log(path: str | None) -> None:
    """Send the audit log to a file, which may be rotated by renaming it; by default to standard error. Raises
    OperatorError."""
    from logging.handlers import WatchedFileHandler

    audit = logging.getLogger(AUDIT_LOGGER)
    audit.setLevel(logging.INFO)
    audit.propagate = False
    try:
        handler = logging.StreamHandler() if path is None else WatchedFileHandler(path, encoding="utf-8")
    except OSError as error:
        raise OperatorError(
            f"the audit log {path} can't be opened: {error.strerror}: choose another path with --audit-log"
        ) from error
    handler.setFormatter(logging.Formatter("%(message)s"))
    audit.handlers[:] = [handler]


def write_entry(time_ms: int, fields: Mapping[str, Any]) -> None:
    """Write one line."""
    shown = {
        name: value[:MAX_FIELD_CHARS] if isinstance(value, str) else value
        for name, value in fields.items()
        if value is not None
    }
    entry = {"time": moment(time_ms).replace(" ", "T") + "Z", **shown}
    logging.getLogger(AUDIT_LOGGER).info("%s", json.dumps(entry))
