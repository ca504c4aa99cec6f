"""Cleaner status of each log: `.ottla_cleaner` in each data directory, which `ottla log cleaner` reads.

JSON, replaced as a whole and never synced. It is for operators, and gives a restarted broker the times of the last
passes. It does not influence cleaning; a damaged file is ignored.

The cleaned offsets are in `cleaner_checkpoint`, which the command reads too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.common.errors import DAMAGED_JSON
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.storage.directory.log_cleaner import LogCleaner, PassReport
from ottla.storage.files.checkpoints import CheckpointCorruption
from ottla.storage.log.log import Log

_VERSION = 0

CLEANING, DUE, WAITING, UNCLEANABLE = "cleaning", "due", "waiting", "uncleanable"
"""States of a log: being cleaned; waiting for a worker; not due; failed, and retried later."""


class LogReport(NamedTuple):
    """Status of one log at the time of the report."""

    topic: str
    partition: int
    state: str
    reason: str
    """Reason for a waiting or failed log; else empty."""
    retry_ms: int
    """Retry time of a failed log, in ms since the Unix epoch; else -1."""
    last_pass: PassReport | None


class CleanerReport(NamedTuple):
    """Content of the file."""

    time_ms: int
    logs: Sequence[LogReport]


def reports_of(cleaner: LogCleaner, logs: Iterable[Log]) -> list[LogReport]:
    """Return reports of compacted logs, as of the cleaner's last scan."""
    found = []
    for log in logs:
        partition = (log.topic, log.partition)
        state, reason, retry_ms = _state(cleaner, partition, log.config.min_cleanable_dirty_ratio)
        found.append(LogReport(*partition, state, reason, retry_ms, cleaner.reports.get(partition)))
    return found


def _state(cleaner: LogCleaner, partition: TopicPartition, least_ratio: float) -> tuple[str, str, int]:
    if partition in cleaner.passes:
        return CLEANING, "", -1
    given_up = cleaner.uncleanable.get(partition)
    if given_up is not None:
        return UNCLEANABLE, given_up.reason, given_up.retry_ms
    found = cleaner.found.get(partition)
    if found is None:
        return WAITING, "the cleaner has not checked it yet", -1
    if found.is_due(least_ratio):
        return DUE, "", -1
    if found.held_by:
        return WAITING, f"complete segments wait for {found.held_by}", -1
    if not found.cleanable_bytes:
        return WAITING, "only the active segment is dirty", -1
    return WAITING, f"the dirty ratio is not above min.cleanable.dirty.ratio, {least_ratio:g}", -1


def format_report(report: CleanerReport) -> bytes:
    """Return the bytes of the file."""
    import json  # imported here, as below: many brokers clean nothing

    logs = [
        {**log._asdict(), "last_pass": None if log.last_pass is None else log.last_pass._asdict()}
        for log in report.logs
    ]
    return json.dumps({"version": _VERSION, "time_ms": report.time_ms, "logs": logs}, indent=1).encode()


def parse_report(data: bytes, path: str) -> CleanerReport:
    """Parse the file at `path`. Raises CheckpointCorruption."""
    import json

    try:
        document = json.loads(data)
        if document["version"] != _VERSION:
            raise CheckpointCorruption(f"{path}: not a report of version {_VERSION}")
        logs = [_parse_log(each) for each in document["logs"]]
        return CleanerReport(int(document["time_ms"]), logs)
    except DAMAGED_JSON as error:
        raise CheckpointCorruption(f"{path}: not a report of the log cleaner") from error


def _parse_log(fields: dict[str, object]) -> LogReport:
    log = LogReport(**fields)  # type: ignore[arg-type]
    if not isinstance(log.topic, str) or not isinstance(log.partition, int):
        raise TypeError("a log has a topic and a partition")
    if log.last_pass is None:
        return log
    last_pass = PassReport(**log.last_pass)  # type: ignore[arg-type]
    if not all(isinstance(figure, int | float) for figure in last_pass):
        raise TypeError("figures of a pass are numbers")
    return log._replace(last_pass=last_pass)
