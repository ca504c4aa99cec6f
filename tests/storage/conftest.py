"""Fakes for storage tests: a clock under control of the test, and a disk in memory that can crash, fill up and fail.

The disk is the simulator's (`simulation.file_system`). Test modules get the classes by the session fixture `fakes`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from simulation.file_system import CAPACITY_BYTES, FileSystem, Inode, MemoryDisk

from ottla.record.builder import RecordData, build_batch
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.log_config import LogConfig


class FakeClock:
    """Wall time under the control of a test."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000


class FakeRng:
    """A deterministic sequence (xorshift) by seed."""

    def __init__(self, seed: int = 1) -> None:
        self._state = seed * 2654435761 % 2**64 or 1

    def _next(self) -> int:
        x = self._state
        x ^= x << 13 & 0xFFFFFFFFFFFFFFFF
        x ^= x >> 7
        x ^= x << 17 & 0xFFFFFFFFFFFFFFFF
        self._state = x
        return x

    def randrange(self, stop: int) -> int:
        return self._next() % stop

    def random_bytes(self, count: int) -> bytes:
        return bytes(self._next() >> 11 & 0xFF for _ in range(count))


class InlinePool:
    """Blocking pool that runs its work on demand."""

    def __init__(self) -> None:
        self.queue: list[tuple[Callable, Callable]] = []

    def submit(self, work: Callable, done: Callable) -> None:
        self.queue.append((work, done))

    def run_one(self) -> None:
        work, done = self.queue.pop(0)
        try:
            result = work()
        except OSError as error:
            done(None, error)
        else:
            done(result, None)

    def run_all(self) -> None:
        while self.queue:
            self.run_one()


class CrashDisk(MemoryDisk):
    """A disk that a test can fill up, fail and cut off power, with its file system accessible."""

    def __init__(self, clock: FakeClock, capacity: int = CAPACITY_BYTES) -> None:
        super().__init__(FileSystem(clock))
        self.capacity = capacity
        self.cold = False
        self.fault: Callable[[str, str], OSError | None] = lambda action, path: None

    def before(self, action: str, path: str) -> None:
        error = self.fault(action, path)
        if error is not None:
            raise error

    def room(self) -> int:
        return max(self.capacity - self.files.used_bytes, 0)

    def is_cold(self) -> bool:
        return self.cold

    @property
    def locked(self) -> set[str]:
        return self.files.locked

    def write_bytes(self, path: str, data: bytes) -> None:
        """Create a durable file."""
        self.files.change((path, Inode(data), True))
        self.files.sync_directory(posixpath.dirname(path))

    def crash(self, rng: FakeRng) -> None:
        """Power failure: drop volatile data, as far as the random choices decide."""
        self.files.lose_power(rng)
        self.open_count = 0


def make_batch(timestamp: int, count: int = 1, size: int = 20, key: bytes | None = b"k", **options) -> bytearray:
    """Build a batch of `count` records of `size` bytes each, with timestamps rising by 1 ms."""
    records = [RecordData(timestamp + number, key, bytes([number % 251]) * size) for number in range(count)]
    return build_batch(records, **options)


def open_manager(disk, clock, rng=None, directory="/data", config: LogConfig | None = None, **options) -> LogManager:
    """Return a log manager with its logs loaded."""
    manager = LogManager(disk, clock, rng or FakeRng(7), directory.split(","), default_config=config, **options)
    manager.open(node_id=1)
    manager.load_logs()
    return manager


def read_log(log, offset: int | None = None, end: int | None = None) -> list:
    """Return all batches from `offset` (the log start) on: (base, last offset, bytes behind the leader epoch)."""
    from ottla.record.batch import iter_batches

    position = log.log_start_offset if offset is None else offset
    stop = log.log_end_offset if end is None else end
    found = []
    while position < stop:
        result = log.read(position, 4096, max_offset=stop)
        if result.records is None:
            break
        data = result.records.read_all()
        result.records.release()
        batches = list(iter_batches(data))
        assert batches, "a read gave no whole batch"
        found += [(batch.base_offset, batch.last_offset, batch.to_bytes()[16:]) for batch in batches]
        position = batches[-1].next_offset
    return found


@pytest.fixture(scope="session")
def fakes() -> SimpleNamespace:
    """The classes and helpers above, since test modules can't import a conftest."""
    return SimpleNamespace(
        Clock=FakeClock,
        Rng=FakeRng,
        Pool=InlinePool,
        Disk=CrashDisk,
        make_batch=make_batch,
        open_manager=open_manager,
        read_log=read_log,
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def disk(clock: FakeClock) -> CrashDisk:
    return CrashDisk(clock)
