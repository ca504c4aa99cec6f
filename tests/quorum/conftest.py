"""A quorum driver on a real directory, with a pool that runs work at once or on demand."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.app.disk import RealDisk
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.runtime import NodeRuntime
from ottla.metadata.publisher import MetadataPublisher
from ottla.quorum.config import LocalReplica
from ottla.quorum.driver import QuorumDriver
from ottla.quorum.metadata_log import MetadataLogConfig

DIRECTORY_ID = b"D" * 16
ENDPOINTS = [Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)]


class FixedClock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000


class SeededRng:
    def __init__(self) -> None:
        self._random = random.Random(7)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)


class Handle:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class StepScheduler:
    """Stores scheduled callbacks until the test runs them."""

    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.later: list[tuple[float, Callable[..., Any], tuple[Any, ...], Handle]] = []

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Handle:
        self.soon.append((callback, args))
        return Handle()

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Handle:
        handle = Handle()
        self.later.append((delay, callback, args, handle))
        return handle

    def run_soon(self) -> None:
        while self.soon:
            callback, args = self.soon.pop(0)
            callback(*args)

    def run_timers(self) -> None:
        due, self.later = self.later, []
        for _, callback, args, handle in due:
            if not handle.cancelled:
                callback(*args)


class StepPool:
    """A blocking pool: immediate, or holding work back until `run`."""

    def __init__(self) -> None:
        self.immediate = True
        self.held: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        self.runs = 0

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.held.append((work, done))
        if self.immediate:
            self.run()

    def run(self) -> None:
        while self.held:
            work, done = self.held.pop(0)
            self.runs += 1
            try:
                result, error = work(), None
            except Exception as caught:
                result, error = None, caught
            done(result, error)


class Setup:
    """Everything a driver needs, and the drivers of one data directory one after the other."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.disk: Any = RealDisk()
        self.clock = FixedClock()
        self.rng = SeededRng()
        self.scheduler = StepScheduler()
        self.pool = StepPool()
        self.failures: list[BaseException] = []
        self.publisher = MetadataPublisher()
        self.config = MetadataLogConfig()
        self.directory = data_dir / "__cluster_metadata-0"

    def driver(self, node_id: int = 1, directory_id: bytes = DIRECTORY_ID) -> QuorumDriver:
        self.publisher = MetadataPublisher()
        return QuorumDriver(
            runtime=NodeRuntime(self.disk, self.clock, self.rng, self.scheduler, self.pool),
            local=LocalReplica(node_id, directory_id, str(self.data_dir), self.config),
            publisher=self.publisher,
            on_failure=self.failures.append,
        )

    def started(self) -> QuorumDriver:
        driver = self.driver()
        driver.start(ENDPOINTS)
        return driver


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)
