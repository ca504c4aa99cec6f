"""Schedule of a repeated load: hourly, daily, or by a cron expression, in UTC.

A load is incremental, so the next run makes up for a missed one; between runs only the table has state. A run that
takes longer than its period skips the times that passed meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from ottla.common.errors import OperatorError, OttlaError

NAMED = {"hourly": "0 * * * *", "daily": "0 0 * * *"}
MAX_SLEEP_S = 30.0
"""Maximum sleep between checks of the wall clock, so that a changed clock or a suspended machine delays no run for
long."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Times that a cron expression of five fields names, or of six with the seconds last."""

    expression: str

    def next_after(self, instant: datetime) -> datetime:
        """The first time after `instant`, which has a time zone."""
        following: datetime = next(CronSim(self.expression, instant.astimezone(UTC)))
        return following


def parse_schedule(text: str) -> Schedule:
    """`hourly`, `daily` or a cron expression. Raises OperatorError for anything else."""
    expression = NAMED.get(text, text)
    try:
        next(CronSim(expression, datetime.now(UTC)))
    except (
        CronSimError,
        StopIteration,
        ValueError,
        AssertionError,
    ) as error:  # a time beyond 50 years, numbers, `5L/2`
        reason = error if isinstance(error, CronSimError) else "it can't be read"
        raise OperatorError(
            f"--schedule {text!r} is neither one of {', '.join(NAMED)} nor a cron expression such as '*/15 * * * "
            f"*': {reason}"
        ) from error
    return Schedule(expression)


def _now() -> datetime:
    return datetime.now(UTC)


def repeat(
    schedule: Schedule,
    work: Callable[[], None],
    report: Callable[[str], None],
    now: Callable[[], datetime] = _now,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Do `work` now and at every time of the schedule, until a signal ends it; `report` prints failures and times.

    The first failure is raised, since it may be an error of the command line; later failures, such as unreachable
    brokers, are printed, and the next run makes up for them. It ends when its output has no reader any more.
    """
    work()
    while True:
        due = schedule.next_after(now())
        report(f"next at {due:%Y-%m-%d %H:%M:%S} UTC")
        while (left := (due - now()).total_seconds()) > 0:
            sleep(min(left, MAX_SLEEP_S))
            due = min(due, schedule.next_after(now()))  # earlier only where the clock was set back
        try:
            work()
        except (OttlaError, OSError) as error:
            if isinstance(error, BrokenPipeError) and error.filename is not None:
                raise  # of standard output: connections to others have no name
            report(f"this run failed: {error}")
