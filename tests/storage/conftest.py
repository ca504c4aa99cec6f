"""Fakes that storage is tested on: a clock that stands still, and a disk in memory that can crash, fill up and fail.

`CrashDisk` keeps what the page cache shows apart from what is durable. A crash keeps everything that was synced, of
names only those in directories that were; of the rest, file data may be cut anywhere or end in nonsense, and changes of
names survive up to some point of their order, as on a journaling file system. Test modules get the classes by the
session fixture `fakes`.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from ottla.common.disk import Buffer
from ottla.record.builder import RecordData, build_batch
from ottla.storage.log_config import LogConfig
from ottla.storage.log_manager import LogManager


class FakeClock:
    """Wall time that moves when a test says so."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000


class FakeRng:
    """A deterministic sequence (xorshift); the same seed gives the same."""

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
    """A blocking pool that runs its work when told to."""

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


class Inode:
    """A file's bytes, as read and as durable."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.mtime_ms = 0


class CrashFile:
    """An open file of a `CrashDisk`."""

    can_send = False

    def __init__(self, disk: CrashDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._inode: Inode | None = inode
        self.path = path
        disk.open_count += 1

    def _live(self) -> Inode:
        assert self._inode is not None, f"{self.path} is used after close"
        return self._inode

    def append(self, buffers: Sequence[Buffer]) -> int:
        inode = self._live()
        data = b"".join(bytes(buffer) for buffer in buffers)
        self._disk.check("append", self.path)
        room = self._disk.room()
        if room < len(data):
            inode.data += data[:room]
            raise OSError(errno.ENOSPC, "no space left", self.path)
        inode.data += data
        inode.mtime_ms = self._disk.clock.now_ms
        return len(data)

    def write_at(self, data: Buffer, position: int) -> None:
        self._live().data[position : position + len(data)] = data

    def read(self, length: int, position: int) -> bytes:
        self._disk.check("read", self.path)
        return bytes(self._live().data[position : position + length])

    def is_at(self, path: str) -> bool:
        return self._disk._names.get(path) is self._live()

    def read_into(self, view: memoryview, position: int) -> int:
        data = self.read(len(view), position)
        view[: len(data)] = data
        return len(data)

    def try_read_into(self, view: memoryview, position: int) -> int:
        if self._disk.cold:
            raise BlockingIOError(errno.EAGAIN, "not cached")
        return self.read_into(view, position)

    def size(self) -> int:
        return len(self._live().data)

    def truncate(self, size: int) -> None:
        self._disk.check("truncate", self.path)
        data = self._live().data
        if size < len(data):
            del data[size:]
        else:
            data.extend(bytes(size - len(data)))

    def fsync(self) -> None:
        self._disk.check("fsync", self.path)
        inode = self._live()
        inode.durable = bytes(inode.data)

    def preallocate(self, position: int, length: int) -> None:
        return None

    def close(self) -> None:
        if self._inode is not None:
            self._inode = None
            self._disk.open_count -= 1


class CrashLock:
    def __init__(self, disk: CrashDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class CrashDisk:
    """A file system in memory; implements `ottla.common.disk.Disk`."""

    def __init__(self, clock: FakeClock, capacity: int = 1 << 40) -> None:
        self.clock = clock
        self.capacity = capacity
        self.cold = False
        self.open_count = 0
        self.boots = 0
        self.locked: set[str] = set()
        self.fault: Callable[[str, str], OSError | None] = lambda action, path: None
        self._names: dict[str, Inode | None] = {"/": None}
        self._durable_names: dict[str, Inode | None] = {"/": None}
        self._journal: list[list[tuple[str, Inode | None, bool]]] = []

    def check(self, action: str, path: str) -> None:
        error = self.fault(action, path)
        if error is not None:
            raise error

    def boot_id(self) -> str:
        return f"boot {self.boots}"

    def room(self) -> int:
        used = sum(len(inode.data) for inode in self._names.values() if inode is not None)
        return max(self.capacity - used, 0)

    # -- names: (path, inode or None for a directory, present)

    def _change(self, *changes: tuple[str, Inode | None, bool]) -> None:
        self._apply(self._names, changes)
        self._journal.append(list(changes))

    @staticmethod
    def _apply(names: dict[str, Inode | None], changes: Sequence[tuple[str, Inode | None, bool]]) -> None:
        for path, inode, present in changes:
            if present:
                names[path] = inode
            else:
                names.pop(path, None)

    def _commit_names(self, directory: str) -> None:
        """Make the changes of names in one directory durable; of others only what a moved or removed one held."""
        whole = 0
        for number, changes in enumerate(self._journal, 1):
            if len(changes) > 1 and any(inode is None for _, inode, _ in changes):
                whole = number
        later = []
        for number, changes in enumerate(self._journal):
            if number < whole or posixpath.dirname(changes[0][0]) == directory:
                self._apply(self._durable_names, changes)
            else:
                later.append(changes)
        self._journal = later

    def crash(self, rng: FakeRng) -> None:
        """Power failure: forget what was not durable, as far as chance wants."""
        self.boots += 1
        for changes in self._journal[: rng.randrange(len(self._journal) + 1)]:
            self._apply(self._durable_names, changes)
        self._journal.clear()
        for path in sorted(self._durable_names):  # what is in a directory without a name is lost with it
            if posixpath.dirname(path) not in self._durable_names:
                del self._durable_names[path]
        for inode in {id(inode): inode for inode in self._durable_names.values() if inode is not None}.values():
            inode.data = bytearray(self._after_crash(inode, rng))
            inode.durable = bytes(inode.data)
        self._names = dict(self._durable_names)
        self.locked.clear()
        self.open_count = 0

    @staticmethod
    def _after_crash(inode: Inode, rng: FakeRng) -> bytes:
        data, durable = bytes(inode.data), inode.durable
        if data == durable:
            return data
        if not data.startswith(durable):
            return durable if rng.randrange(2) else data
        keep = len(durable) + rng.randrange(len(data) - len(durable) + 1)
        kind = rng.randrange(3)
        if kind == 0:
            return data[:keep]
        if kind == 1:
            return data[:keep] + bytes(len(data) - keep)
        return data[:keep] + rng.random_bytes(len(data) - keep)

    # -- Disk

    def _file(self, path: str) -> Inode:
        inode = self._names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> CrashFile:
        self.check("open", path)
        if create and path not in self._names:
            if posixpath.dirname(path) not in self._names:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            self._change((path, Inode(), True))
        return CrashFile(self, path, self._file(path))

    def read_bytes(self, path: str) -> bytes:
        self.check("read", path)
        return bytes(self._file(path).data)

    def write_bytes(self, path: str, data: bytes) -> None:
        """Test helper: put a file there, durable."""
        inode = Inode()
        inode.data = bytearray(data)
        inode.durable = bytes(data)
        self._change((path, inode, True))
        self._commit_names(posixpath.dirname(path))

    def write_atomic(self, path: str, data: bytes) -> None:
        self.check("append", path)
        if self.room() < len(data):
            raise OSError(errno.ENOSPC, "no space left", path)
        if posixpath.dirname(path) not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.write_bytes(path, data)

    def listdir(self, path: str) -> list[str]:
        self.check("listdir", path)
        prefix = path.rstrip("/") + "/"
        return sorted(
            name[len(prefix) :] for name in self._names if name.startswith(prefix) and "/" not in name[len(prefix) :]
        )

    def exists(self, path: str) -> bool:
        return path in self._names

    def is_dir(self, path: str) -> bool:
        return path in self._names and self._names[path] is None

    def size(self, path: str) -> int:
        return len(self._file(path).data)

    def mtime_ms(self, path: str) -> int:
        return self._file(path).mtime_ms

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        self._file(path).mtime_ms = mtime_ms

    def makedirs(self, path: str) -> None:
        parent = posixpath.dirname(path)
        if parent not in self._names:
            self.makedirs(parent)
        if path not in self._names:
            self._change((path, None, True))

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        if source not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        changes = []
        for path, inode in list(self._names.items()):
            if path == source or path.startswith(source + "/"):
                changes += [(path, inode, False), (target + path[len(source) :], inode, True)]
        self._change(*changes)

    def unlink(self, path: str) -> None:
        if self._names.get(path) is not None:
            self._change((path, None, False))

    def rmtree(self, path: str) -> None:
        doomed = [name for name in self._names if name == path or name.startswith(path + "/")]
        if doomed:
            self._change(*((name, None, False) for name in doomed))

    def fsync_dir(self, path: str) -> None:
        self.check("fsync", path)
        self._commit_names(path)

    def usage(self, path: str) -> tuple[int, int]:
        return self.capacity, self.room()

    def lock(self, path: str) -> CrashLock:
        if path in self.locked:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self.locked.add(path)
        return CrashLock(self, path)


def make_batch(timestamp: int, count: int = 1, size: int = 20, key: bytes | None = b"k", **options) -> bytearray:
    """A batch of `count` records of `size` bytes each, timestamps rising by 1 ms."""
    records = [RecordData(timestamp + number, key, bytes([number % 251]) * size) for number in range(count)]
    return build_batch(records, **options)


def open_manager(disk, clock, rng=None, directory="/data", config: LogConfig | None = None, **options) -> LogManager:
    """A log manager with its logs loaded."""
    manager = LogManager(disk, clock, rng or FakeRng(7), directory, default_config=config, **options)
    manager.open(node_id=1)
    manager.load_logs()
    return manager


def read_log(log, offset: int | None = None, end: int | None = None) -> list:
    """All batches from `offset` (the log start) on, as (base offset, last offset, bytes behind the leader epoch)."""
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
