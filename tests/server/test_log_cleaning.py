"""The cleaner of a broker: its settings, also changed at runtime, and its metrics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from simulation.file_system import FileSystem, MemoryDisk

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.platform.runtime import NodeRuntime
from ottla.metrics.exposition import render
from ottla.metrics.registry import MetricsRegistry
from ottla.server.lifecycle.background import PeriodicSteps
from ottla.server.lifecycle.log_cleaning import (
    LEAST_BUFFER_BYTES,
    LEAST_BYTES_PER_SECOND,
    LogCleaning,
    cleaner_settings,
)
from ottla.server.requests.failures import Failures
from ottla.server.requests.in_flight import InFlight, TrackedPool
from ottla.server.wiring.cleaner_gauges import register_cleaner_gauges
from ottla.storage.directory.cleaner_report import parse_report
from ottla.storage.directory.log_cleaner import PassReport, Uncleanable
from ottla.storage.files.log_config import LogConfig


class Scheduler:
    """Timers that run on the test's command."""

    def __init__(self) -> None:
        self.timers: list[list] = []

    def call_later(self, delay, callback, *args):
        timer = [delay, callback]
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: timer in self.timers and self.timers.remove(timer))  # type: ignore[func-returns-value]

    def run(self) -> None:
        due, self.timers = self.timers, []
        for _, callback in due:
            callback()


class Clock:
    def time_ms(self) -> int:
        return 5000

    def monotonic(self) -> float:
        return 5.0


class InlinePool:
    """Runs work at once."""

    def submit(self, work, done) -> None:
        try:
            result = work()
        except OSError as error:
            done(None, error)
        else:
            done(result, None)


def parse(**settings: str) -> BrokerConfig:
    config, warnings = BrokerConfig.parse({f"log.cleaner.{k.replace('_', '.')}": v for k, v in settings.items()})
    assert not warnings
    return config


@pytest.fixture
def scheduler():
    return Scheduler()


@pytest.fixture
def disk():
    disk = MemoryDisk(FileSystem(Clock()))
    disk.makedirs("/data")
    return disk


@pytest.fixture
def cleaning(scheduler, disk):
    """With a log under repair, so that it is skipped."""
    return new_cleaning(scheduler, disk)


def new_cleaning(scheduler, disk):
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    repair = object()
    bad = SimpleNamespace(topic="bad", partition=0, size_bytes=70, config=config, failed=False, cleaning=repair)
    health = SimpleNamespace(offline=None)
    directory = SimpleNamespace(path="/data", logs={("bad", 0): bad}, compacted_logs=lambda: [bad], health=health)
    logs = SimpleNamespace(
        directories=[directory],
        futures={},
        cleaner_checkpoint=SimpleNamespace(due=lambda: None),
        get_log=lambda *key: bad,
    )
    nothing: Any = None
    runtime = NodeRuntime(disk, Clock(), nothing, scheduler, InlinePool())
    steps = PeriodicSteps(scheduler, Failures(Clock()))
    return LogCleaning(parse(), cast("Any", logs), runtime, lambda: nothing, in_flight=InFlight(), steps=steps)


def test_defaults_are_kafkas():
    settings = cleaner_settings(parse())
    assert settings == (1, 128 << 20, 0.9, 512 << 10, 1.7976931348623157e308)


def test_too_small_settings_are_raised_to_the_minimum():
    settings = cleaner_settings(parse(threads="3", dedupe_buffer_size="5", io_max_bytes_per_second="0"))
    assert settings.dedupe_buffer_bytes == 3 * LEAST_BUFFER_BYTES
    assert settings.max_bytes_per_second == LEAST_BYTES_PER_SECOND


def test_settings_change_while_it_runs(cleaning, scheduler):
    cleaning.use_config(parse(backoff_ms="2000"))
    assert [delay for delay, _ in scheduler.timers] == [2.0]
    cleaning.use_config(parse(backoff_ms="2000", threads="4"))
    assert cleaning.cleaner.settings.threads == 4
    assert len(scheduler.timers) == 1
    cleaning.use_config(parse(backoff_ms="9000"))
    assert [delay for delay, _ in scheduler.timers] == [9.0], "one step only"
    scheduler.run()
    assert [delay for delay, _ in scheduler.timers] == [9.0]
    assert cleaning.cleaner.last_run_ms == 5000


def test_without_threads_the_cleaner_is_idle(cleaning):
    cleaning.use_config(parse(threads="0"))
    cleaning.cleaner.last_run_ms = 1
    cleaning.cleaner.run_due()
    assert cleaning.cleaner.last_run_ms == 1


def test_gauges(cleaning):
    registry = MetricsRegistry()
    cleaner = cleaning.cleaner
    register_cleaner_gauges(registry, cleaner, Clock())
    cleaner.uncleanable["bad", 0] = Uncleanable("damage", 0)
    cleaner.dead.add(cast("Any", object()))
    cleaner.reports["a", 0] = PassReport(0, 2.5, 1000, 300, 100, 0.25)
    cleaner.reports["b", 0] = PassReport(0, 1.0, 1000, 100, 300, 0.5)
    cleaner.max_dirty_ratio, cleaner.max_overdue_ms, cleaner.last_run_ms = 0.75, 9_999, 4_000
    text = b"".join(render(registry)).decode()
    for line in (
        'kafka_log_logcleanermanager_uncleanable_partitions_count{logDirectory="/data"} 1',
        'kafka_log_logcleanermanager_uncleanable_bytes{logDirectory="/data"} 70',
        "kafka_log_logcleanermanager_max_dirty_percent 75",
        "kafka_log_logcleanermanager_time_since_last_run_ms 1000",
        "kafka_log_logcleaner_deadthreadcount 1",
        "kafka_log_logcleaner_max_compaction_delay_secs 9",
        "kafka_log_logcleaner_max_clean_time_secs 2.5",
        "kafka_log_logcleaner_max_buffer_utilization_percent 50",
        "kafka_log_logcleaner_cleaner_recopy_percent 50",
    ):
        assert line in text.splitlines(), line


def test_pool_work_is_in_flight_until_its_callback_is_done():
    in_flight, submitted, seen = InFlight(), [], []
    pool = TrackedPool(SimpleNamespace(submit=lambda work, done: submitted.append((work, done))), in_flight)
    pool.submit(lambda: 7, lambda result, error: seen.append((result, in_flight.count)))
    assert in_flight.count == 1
    [(work, done)] = submitted
    done(work(), None)
    assert seen == [(7, 1)]
    assert in_flight.count == 0


def test_cleaner_report_file_is_read_after_a_restart(scheduler, disk, cleaning):
    path = "/data/.ottla_cleaner"
    done = PassReport(4000, 1.5, 100, 30, 70, 0.1)
    cleaning.use_config(parse())
    cleaning.cleaner.reports["bad", 0] = done
    scheduler.run()
    reported = parse_report(disk.read_bytes(path), path)
    assert reported == (5000, [("bad", 0, "waiting", "the cleaner has not checked it yet", -1, done)])
    disk.unlink(path)
    scheduler.run()
    assert not disk.exists(path), "nothing has changed"
    cleaning.cleaner.uncleanable["bad", 0] = Uncleanable("damage", 9000)
    scheduler.run()
    assert parse_report(disk.read_bytes(path), path).logs == [("bad", 0, "uncleanable", "damage", 9000, done)]

    assert new_cleaning(scheduler, disk).cleaner.reports == {("bad", 0): done}
    disk.overwrite(path, b"!")
    assert new_cleaning(scheduler, disk).cleaner.reports == {}


def test_a_file_that_could_not_be_written_is_written_again(scheduler, disk, cleaning):
    disk.rename("/data", "/elsewhere")
    cleaning.use_config(parse())
    scheduler.run()
    disk.rename("/elsewhere", "/data")
    scheduler.run()
    assert disk.exists("/data/.ottla_cleaner")
