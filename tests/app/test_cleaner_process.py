"""The cleaner's worker as a process: a log on a real disk is cleaned, and every end of the process is noticed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from multiprocessing.connection import Pipe

import pytest

from ottla.app.cleaner_process import CleanerProcess
from ottla.app.cleaner_worker import NICENESS, Throttle, serve
from ottla.app.clock import SystemClock, SystemRng
from ottla.app.disk import RealDisk
from ottla.app.pool import ThreadPool
from ottla.record.batch import iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.storage.directory.log_cleaner import CleanerSettings, LogCleaner
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.log_config import LogConfig

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
SETTINGS = CleanerSettings(
    threads=1, dedupe_buffer_bytes=1 << 20, load_factor=0.9, io_buffer_bytes=1 << 16, max_bytes_per_second=1e12
)
MOST_NICENESS = 19
"""Linux permits no higher nice value."""

BROKER = """
import subprocess, sys, time
from multiprocessing.connection import Pipe
ours, theirs = Pipe()
command = [sys.executable, "-P", "-m", "ottla.app.cleaner_worker", str(theirs.fileno())]
subprocess.Popen(command, pass_fds=[theirs.fileno()])
theirs.close()
print("begun", flush=True)
time.sleep(600)
"""
"""A process with a worker, like the broker, that does not end it."""


class Site:
    """A directory with one log of two segments, in which each key is written twice."""

    def __init__(self, path) -> None:
        self.pool = ThreadPool(asyncio.get_running_loop())
        self.manager = LogManager(RealDisk(), SystemClock(), SystemRng(), (str(path),), default_config=CONFIG)
        self.manager.open(node_id=1)
        self.manager.load_logs()
        self.log = self.manager.create_log("t", 0, bytes(16))
        for number in range(20):
            batch = build_batch([RecordData(1_700_000_000_000, b"%d" % (number % 10), b"%d" % number)])
            self.log.append_as_leader(batch, 0, len(batch), 0)
        self.log.roll()
        self.log.flush()
        self.workers: list[CleanerProcess] = []
        self.cleaner = LogCleaner(
            self.manager, SETTINGS, self.worker, pool=self.pool, clock=SystemClock(), rng=SystemRng()
        )

    def worker(self) -> CleanerProcess:
        self.workers.append(CleanerProcess(asyncio.get_running_loop(), self.pool))
        return self.workers[-1]

    @property
    def pid(self) -> int:
        return self.workers[0]._process.pid

    async def until(self, condition) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.005)

    async def clean(self) -> None:
        self.cleaner.run_due()
        await self.until(lambda: not self.cleaner.passes)

    def values(self) -> list[bytes | None]:
        result = self.log.read(0, 1 << 20, max_offset=self.log.log_end_offset)
        data = result.records.read_all()
        result.records.release()
        return [record.value for batch in iter_batches(data) for record in batch.records()]


@pytest.fixture
def on_site(tmp_path):
    """Runs a test's coroutine function with a `Site`, and closes that."""

    def run(test) -> None:
        async def main() -> None:
            site = Site(tmp_path / "data")
            try:
                await test(site)
            finally:
                site.cleaner.stop()
                for worker in site.workers:
                    worker.close()
                site.pool.close()

        asyncio.run(main())

    return run


def test_a_log_is_cleaned_by_another_process(on_site):
    async def test(site):
        await site.clean()
        assert not site.cleaner.uncleanable
        assert site.values() == [b"%d" % number for number in range(10, 20)]
        assert site.pid != os.getpid()
        assert os.getpriority(os.PRIO_PROCESS, site.pid) == min(os.nice(0) + NICENESS, MOST_NICENESS)
        first = site.pid
        site.log.append_as_leader(batch := build_batch([RecordData(1, b"1", b"new")]), 0, len(batch), 0)
        site.log.roll()
        site.log.flush()
        await site.clean()
        assert len(site.values()) == 10
        assert site.pid == first, "it is kept for the next round"

    on_site(test)


def test_killed_process_fails_round_and_is_replaced(on_site, caplog):
    async def test(site):
        site.cleaner.settings = SETTINGS._replace(max_bytes_per_second=1e-6)  # so the round doesn't end by itself
        site.cleaner.run_due()
        await site.until(lambda: site.workers[0]._process is not None)
        os.kill(site.pid, signal.SIGKILL)
        await site.until(lambda: not site.cleaner.passes)
        assert "t-0 could not be cleaned for lack of space" in caplog.text
        assert "its process ended with -9" in caplog.text
        assert site.cleaner.dead == set(site.workers)
        site.cleaner.settings = SETTINGS
        await site.clean()
        assert not site.cleaner.dead
        assert len(site.values()) == 10

    on_site(test)


def test_a_cut_ends_the_round_of_the_process(on_site):
    async def test(site):
        site.cleaner.settings = SETTINGS._replace(max_bytes_per_second=1e-6)
        site.cleaner.run_due()
        await site.until(lambda: site.workers[0]._process is not None)
        site.log.truncate_to(5)
        await site.clean()
        assert site.values() == [b"%d" % number for number in range(5)]
        assert not site.cleaner.dead, "it was asked to end"

    on_site(test)


def test_worker_ignores_signals_of_the_process_group(on_site):
    async def test(site):
        await site.clean()
        os.kill(site.pid, signal.SIGINT)
        os.kill(site.pid, signal.SIGTERM)
        site.log.append_as_leader(batch := build_batch([RecordData(1, b"1", b"new")]), 0, len(batch), 0)
        site.log.roll()
        site.log.flush()
        before = site.pid
        await site.clean()
        assert site.pid == before

    on_site(test)


def test_the_process_ends_when_the_broker_is_gone():
    ours, theirs = Pipe()
    ours.close()
    with pytest.raises((EOFError, ConnectionError)):
        serve(theirs)
    with contextlib.suppress(OSError):
        theirs.close()


def test_a_broker_that_is_killed_leaves_no_process_behind():
    broker = subprocess.Popen([sys.executable, "-c", BROKER], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert broker.stdout is not None
    assert broker.stdout.readline() == b"begun\n"
    broker.kill()
    rest, _ = broker.communicate(timeout=60)  # ends when no process has the other end open
    assert rest == b""


def test_bytes_wait_for_their_time():
    waits = []
    throttle = Throttle(1000, waits.append)
    throttle.took(10_000)
    throttle.took(5_000)
    assert [round(seconds) for seconds in waits] == [10, 15]
    throttle = Throttle(1e15, waits.append)
    throttle.took(1 << 20)
    assert waits[-1] < 0.001
