"""A repeated load: its schedule, its reaction to failures, and a real one that runs until it is stopped."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

pytest.importorskip("cronsim", reason="needs the extra `pipeline`")
pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.app.streams import STANDARD_OUTPUT
from ottla.client.admin.cluster import Cluster
from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.spark.schedule import parse_schedule, repeat
from ottla.testing import Broker

from .limits import RUN_S

START = datetime(2026, 3, 2, 10, 59, 59, tzinfo=UTC)
EVERY_SECOND = "* * * * * *"


@pytest.mark.parametrize(
    ("text", "following"),
    [
        ("hourly", datetime(2026, 3, 2, 11, tzinfo=UTC)),
        ("daily", datetime(2026, 3, 3, tzinfo=UTC)),
        ("*/15 * * * *", datetime(2026, 3, 2, 11, tzinfo=UTC)),
        ("30 4 1 * *", datetime(2026, 4, 1, 4, 30, tzinfo=UTC)),
        (EVERY_SECOND, datetime(2026, 3, 2, 11, tzinfo=UTC)),
    ],
)
def test_the_times_of_a_schedule(text: str, following: datetime) -> None:
    assert parse_schedule(text).next_after(START) == following


def test_times_are_in_utc_wherever_the_clock_is() -> None:
    tokyo = START.astimezone(timezone(timedelta(hours=9)))
    assert parse_schedule("daily").next_after(tokyo) == datetime(2026, 3, 3, tzinfo=UTC)


def test_schedule_without_any_time_is_refused() -> None:
    with pytest.raises(OperatorError, match=r"'0 0 31 2,4 \*' is neither one of hourly, daily nor a cron expression"):
        parse_schedule("0 0 31 2,4 *")


def runs(*outcomes: BaseException | None) -> Callable[[], None]:
    """Work with these outcomes, one a run."""
    left: Iterator[BaseException | None] = iter(outcomes)

    def work() -> None:
        outcome = next(left)
        if outcome is not None:
            raise outcome

    return work


def test_first_failure_is_raised_and_later_ones_reported() -> None:
    printed: list[str] = []
    schedule = parse_schedule(EVERY_SECOND)
    with pytest.raises(OperatorError, match="no broker"):
        repeat(schedule, runs(OperatorError("no broker")), printed.append)
    assert printed == []
    with pytest.raises(KeyboardInterrupt):
        repeat(schedule, runs(None, OttlaError("away"), OSError("full"), None, KeyboardInterrupt()), printed.append)
    assert [text for text in printed if "failed" in text] == ["this run failed: away", "this run failed: full"]
    assert sum(text.startswith("next at ") for text in printed) == 4


class SetClock:
    """A clock that is set back once, by a given time, at the first sleep."""

    def __init__(self, at: datetime, back: timedelta) -> None:
        self.at, self.back = at, back

    def now(self) -> datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds) - self.back
        self.back = timedelta(0)


def test_clock_set_back_does_not_delay_runs() -> None:
    """As on a machine that starts with a wrong clock, and is corrected later."""
    clock = SetClock(START, timedelta(days=1500))
    begun: list[datetime] = []
    printed: list[str] = []

    def work() -> None:
        begun.append(clock.at)
        if len(begun) > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repeat(parse_schedule("hourly"), work, printed.append, clock.now, clock.sleep)
    assert begun[1] - (START - timedelta(days=1500)) < timedelta(hours=2)


def test_schedule_ends_when_stdout_is_closed() -> None:
    gone = BrokenPipeError(errno.EPIPE, "Broken pipe", STANDARD_OUTPUT)
    printed: list[str] = []
    with pytest.raises(BrokenPipeError):
        repeat(parse_schedule(EVERY_SECOND), runs(None, OSError("full"), gone), printed.append)
    assert [text for text in printed if "failed" in text] == ["this run failed: full"]


@pytest.mark.pipeline
def test_scheduled_load_runs_until_stopped_and_commits_group(ottla_broker: Broker, tmp_path: Path) -> None:
    topic = "scheduled"
    table = tmp_path / "table"
    with Cluster(ottla_broker.bootstrap_servers) as cluster:
        cluster.topics.create(topic)
    environment = {**os.environ, "OTTLA_BOOTSTRAP_SERVER": ottla_broker.bootstrap_servers}
    ottla = [sys.executable, "-m", "ottla"]

    def produce(lines: bytes) -> None:
        """One transaction, so that a marker follows the records."""
        command = [*ottla, "produce", topic, "-q", "--transactional-id", "scheduled"]
        subprocess.run(command, input=lines, env=environment, check=True)

    produce(b"one\ntwo\n")
    command = ["pipeline", "load", "-t", topic, "--table", str(table), "--master", "local[1]", "--json"]
    load = subprocess.Popen(
        [*ottla, *command, "--schedule", EVERY_SECOND], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert load.stdout is not None
    try:
        rows = [json.loads(load.stdout.readline())["rows"]]
        produce(b"three\n")
        while sum(rows) < 3:
            rows.append(json.loads(load.stdout.readline())["rows"])
        assert rows[0] == 2
        assert sum(rows) == 3
        last = json.loads(load.stdout.readline())  # nothing new, and the group has all earlier offsets
        with Cluster(ottla_broker.bootstrap_servers) as cluster:
            assert last["group"] == "ottla-load.table.default"
            offsets = cluster.groups.offsets(last["group"])
            ends = cluster.records.list_offsets({(topic, 0): -1})
        assert offsets[topic, 0].offset == ends[topic, 0].offset == 5
    finally:
        load.send_signal(signal.SIGTERM)
        load.communicate(timeout=RUN_S)
    assert load.returncode == 0
