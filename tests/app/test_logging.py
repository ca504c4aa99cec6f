"""Log lines, and the limit on what clients can cause."""

from __future__ import annotations

import io
import json
import logging

import pytest

from ottla.app.logging import BURST, WINDOW_S, RateLimiter, configure_logging
from ottla.common.logs import RATE_LIMITED


@pytest.fixture
def root_logger():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_text_lines(root_logger):
    stream = io.StringIO()
    configure_logging("info", "text", stream)
    logging.getLogger("ottla.net").info("connection %d", 7)
    logging.getLogger("ottla.net").debug("hidden")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(" INFO ottla.net: connection 7")


def test_json_lines(root_logger):
    stream = io.StringIO()
    configure_logging("debug", "json", stream)
    logger = logging.getLogger("ottla.storage")
    logger.debug("caf\u00e9 %s", "x\ny")
    try:
        raise ValueError("planted")
    except ValueError:
        logger.exception("failed")
    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert first["message"] == "caf\u00e9 x\ny"
    assert first["level"] == "debug"
    assert first["logger"] == "ottla.storage"
    assert first["time"].endswith("Z")
    assert "ValueError: planted" in second["exception"]


def test_what_clients_cause_is_limited_for_each_place():
    now = 0.0
    limiter = RateLimiter(lambda: now)

    def record(line: int, **extra: object) -> logging.LogRecord:
        made = logging.LogRecord("ottla.net", logging.WARNING, "f", line, "closing %s", ("x",), None)
        made.__dict__.update(extra)
        return made

    shown = sum(limiter.filter(record(1, **RATE_LIMITED)) for _ in range(100))
    assert shown == BURST
    assert limiter.filter(record(2, **RATE_LIMITED)), "another place has its own limit"
    assert all(limiter.filter(record(1)) for _ in range(100)), "unmarked records always pass"
    now = WINDOW_S
    last = record(1, **RATE_LIMITED)
    assert limiter.filter(last)
    assert last.getMessage() == "closing x (90 more like this were not shown)"


def test_closed_standard_error_is_ignored(root_logger):
    stream = io.StringIO()
    configure_logging("info", "text", stream)
    stream.close()
    logging.getLogger("ottla").info("nobody hears it")
