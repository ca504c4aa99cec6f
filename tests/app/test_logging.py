"""Log lines, and the rate limit of client-caused records."""

from __future__ import annotations

import io
import json
import logging

import pytest

from ottla.app.logging import BURST, WINDOW_S, RateLimiter, configure_logging, write_audit_log
from ottla.common.errors import OperatorError
from ottla.common.logs import AUDIT_LOGGER, RATE_LIMITED


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
    assert last.getMessage() == "closing x (90 similar messages suppressed)"


def test_closed_log_stream_prints_no_traceback(root_logger, capsys):
    """`logging` would print one to standard error for each record."""
    stream = io.StringIO()
    configure_logging("info", "text", stream)
    stream.close()
    logging.getLogger("ottla").info("lost")
    assert capsys.readouterr().err == ""


@pytest.fixture
def audit_logger():
    audit = logging.getLogger(AUDIT_LOGGER)
    yield audit
    for handler in audit.handlers:
        handler.close()
    audit.handlers.clear()
    audit.setLevel(logging.NOTSET)
    audit.propagate = True


def test_the_audit_log_has_all_of_it_and_alone(root_logger, audit_logger, tmp_path):
    stream = io.StringIO()
    configure_logging("warning", "text", stream)
    path = tmp_path / "audit.log"
    path.write_text("before\n")
    write_audit_log(str(path), "text")
    for number in range(2 * BURST):
        audit_logger.info("refused %d", number, extra=RATE_LIMITED)
    audit_logger.debug("allowed")
    lines = path.read_text().splitlines()
    assert lines[0] == "before"
    assert [line.rpartition(" refused ")[2] for line in lines[1:]] == [str(number) for number in range(2 * BURST)]
    assert stream.getvalue() == ""
    path.rename(tmp_path / "audit.log.1")
    audit_logger.info("after")
    assert path.read_text().endswith(": after\n")


def test_an_audit_log_that_can_not_be_written_refuses_the_start(audit_logger, tmp_path):
    with pytest.raises(OperatorError, match="--audit-log"):
        write_audit_log(str(tmp_path / "no" / "audit.log"), "text")
