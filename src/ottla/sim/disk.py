"""A file system in memory that can crash, tear writes, fill up and be slow to cache; the disk of one machine.

`SimDisk` keeps what the page cache shows apart from what is durable. A kill of the process keeps the page cache; a
power failure keeps what was synced, and of the rest: file data is cut anywhere or ends in nonsense, and changes of
names survive up to some point of their order, as on a journaling file system. `Mount` is the disk as one process sees
it, and the place where that process can die: between two operations or with a write half done.

Invariant: after its process died, a mount changes nothing; every operation raises ProcessKilled.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Sequence

from ottla.common.disk import Buffer
from ottla.sim.loop import Process, ProcessKilled, SimClock
from ottla.sim.rng import SimRng

CAPACITY_BYTES = 1 << 40
NEVER = -1


class _Inode:
    """A file's bytes, as read and as durable."""

    __slots__ = ("data", "durable", "mtime_ms")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.mtime_ms = 0


_Change = tuple[str, _Inode | None, bool]
"""(path, inode or None for a directory, whether it is there)."""


class SimDisk:
    """What stays when processes come and go."""

    def __init__(self, clock: SimClock, rng: SimRng) -> None:
        self.clock = clock
        self.rng = rng
        self.full = False
        """Appends fail with ENOSPC, some with a part written."""
        self.failing_chance = 0.0
        """Of a change or a sync that ends with EIO."""
        self.cold_chance = 0.0
        """Of a read that finds nothing in the page cache."""
        self.boots = 0
        """How often the machine was started anew."""
        self.locked: set[str] = set()
        self.names: dict[str, _Inode | None] = {"/": None}
        self._durable_names: dict[str, _Inode | None] = {"/": None}
        self._journal: list[Sequence[_Change]] = []

    @property
    def refuses(self) -> bool:
        """Whether an operation may fail."""
        return self.full or self.failing_chance > 0.0

    def change(self, *changes: _Change) -> None:
        """Change names; durable with the next sync of a directory."""
        self._apply(self.names, changes)
        self._journal.append(changes)

    @staticmethod
    def _apply(names: dict[str, _Inode | None], changes: Sequence[_Change]) -> None:
        for path, inode, present in changes:
            if present:
                names[path] = inode
            else:
                names.pop(path, None)

    def sync_names(self) -> None:
        """All changes of names so far are durable."""
        for changes in self._journal:
            self._apply(self._durable_names, changes)
        self._journal.clear()

    def process_died(self) -> None:
        """Its locks go; the page cache stays."""
        self.locked.clear()

    def power_failed(self) -> None:
        """Forget what was not durable, as far as chance wants."""
        self.process_died()
        self.boots += 1
        for changes in self._journal[: self.rng.randrange(len(self._journal) + 1)]:
            self._apply(self._durable_names, changes)
        self._journal.clear()
        # Each inode once, in the order of names: a file may have two for a moment.
        for inode in {id(inode): inode for inode in self._durable_names.values() if inode is not None}.values():
            inode.data = bytearray(self._left_of(inode))
            inode.durable = bytes(inode.data)
        self.names = dict(self._durable_names)

    def _left_of(self, inode: _Inode) -> bytes:
        data, durable = bytes(inode.data), inode.durable
        if data == durable:
            return data
        if not data.startswith(durable):
            return durable if self.rng.chance(0.5) else data
        keep = len(durable) + self.rng.randrange(len(data) - len(durable) + 1)
        kind = self.rng.randrange(3)
        if kind == 0:
            return data[:keep]
        rest = bytes(len(data) - keep) if kind == 1 else self.rng.random_bytes(len(data) - keep)
        return data[:keep] + rest


class SimFile:
    """An open file. Implements `ottla.common.disk.File`."""

    __slots__ = ("_inode", "_mount", "path")
    can_send = False

    def __init__(self, mount: Mount, path: str, inode: _Inode) -> None:
        self._mount = mount
        self._inode: _Inode | None = inode
        self.path = path

    def _live(self) -> _Inode:
        if self._inode is None:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._inode

    def append(self, buffers: Sequence[Buffer]) -> int:
        """See `File`."""
        inode = self._live()
        data = b"".join(buffers)
        mount = self._mount
        if mount.dies():
            inode.data += data[: mount.disk.rng.randrange(len(data) + 1)]
            raise mount.died()
        if mount.disk.full and data:
            inode.data += data[: mount.disk.rng.randrange(len(data))]
            raise OSError(errno.ENOSPC, "no space left on device", self.path)
        if mount.fails():
            inode.data += data[: mount.disk.rng.randrange(len(data) + 1)]
            raise OSError(errno.EIO, "input/output error", self.path)
        inode.data += data
        inode.mtime_ms = mount.disk.clock.time_ms()
        return len(data)

    def write_at(self, data: Buffer, position: int) -> None:
        """See `File`."""
        self._mount.operation()
        self._live().data[position : position + len(data)] = data

    def read(self, length: int, position: int) -> bytes:
        """See `File`."""
        self._mount.check_alive()
        return bytes(self._live().data[position : position + length])

    def read_into(self, view: memoryview, position: int) -> int:
        """See `File`."""
        data = self.read(len(view), position)
        view[: len(data)] = data
        return len(data)

    def try_read_into(self, view: memoryview, position: int) -> int:
        """See `File`; BlockingIOError by chance."""
        disk = self._mount.disk
        if disk.cold_chance and disk.rng.chance(disk.cold_chance):
            raise BlockingIOError(errno.EAGAIN, "not cached", self.path)
        return self.read_into(view, position)

    def send(self, socket: int, position: int, length: int) -> int:
        """See `File`; there is no descriptor."""
        raise BlockingIOError(errno.EOPNOTSUPP, "no descriptor", self.path)

    def is_cached(self, position: int, length: int) -> bool:
        """See `File`."""
        return True

    def size(self) -> int:
        """See `File`."""
        self._mount.check_alive()
        return len(self._live().data)

    def is_at(self, path: str) -> bool:
        """See `File`."""
        self._mount.check_alive()
        return self._mount.disk.names.get(path) is self._live()

    def truncate(self, size: int) -> None:
        """See `File`."""
        self._mount.operation()
        data = self._live().data
        if size < len(data):
            del data[size:]
        else:
            data.extend(bytes(size - len(data)))

    def fsync(self) -> None:
        """See `File`."""
        self._mount.operation()
        inode = self._live()
        inode.durable = bytes(inode.data)

    def preallocate(self, position: int, length: int) -> None:
        """See `File`; nothing to reserve here."""

    def close(self) -> None:
        """See `File`."""
        self._inode = None


class _Lock:
    __slots__ = ("_disk", "_path")

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class Mount:
    """A disk as one process sees it. Implements `ottla.common.disk.Disk`."""

    def __init__(self, disk: SimDisk, process: Process) -> None:
        self.disk = disk
        self._process = process
        self._dies_in = NEVER

    def boot_id(self) -> str:
        """See `Disk.boot_id`."""
        return f"boot-{self.disk.boots}"

    # -- death

    def die_in(self, operations: int) -> None:
        """Kill the process in the `operations`-th change of the disk from here, counted from 0."""
        self._dies_in = operations

    def check_alive(self) -> None:
        """Raises ProcessKilled on behalf of a process that is dead."""
        if not self._process.alive:
            raise ProcessKilled

    def dies(self) -> bool:
        """Count a change of the disk; whether the process dies in it."""
        self.check_alive()
        if self._dies_in == NEVER:
            return False
        self._dies_in -= 1
        return self._dies_in == NEVER

    def died(self) -> ProcessKilled:
        """The process ends here."""
        self._process.kill()
        return ProcessKilled()

    def fails(self) -> bool:
        """Whether a failing disk refuses the next change."""
        chance = self.disk.failing_chance
        return bool(chance) and self.disk.rng.chance(chance)

    def operation(self) -> None:
        """A change of the disk that happens as a whole or not at all. Raises OSError when the disk fails."""
        if self.dies():
            raise self.died()
        if self.fails():
            raise OSError(errno.EIO, "input/output error")

    # -- Disk

    def _file(self, path: str) -> _Inode:
        self.check_alive()
        inode = self.disk.names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode

    def _need_parent(self, path: str) -> None:
        if posixpath.dirname(path) not in self.disk.names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimFile:
        """See `Disk`."""
        if create and path not in self.disk.names:
            self.operation()
            self._need_parent(path)
            self.disk.change((path, _Inode(), True))
        return SimFile(self, path, self._file(path))

    def read_bytes(self, path: str) -> bytes:
        """See `Disk`."""
        return bytes(self._file(path).data)

    def write_atomic(self, path: str, data: bytes) -> None:
        """See `Disk`."""
        self.operation()
        if self.disk.full:
            raise OSError(errno.ENOSPC, "no space left on device", path)
        self._need_parent(path)
        inode = _Inode()
        inode.data = bytearray(data)
        inode.durable = bytes(data)
        inode.mtime_ms = self.disk.clock.time_ms()
        self.disk.change((path, inode, True))
        self.disk.sync_names()

    def listdir(self, path: str) -> list[str]:
        """See `Disk`."""
        self.check_alive()
        prefix = path.rstrip("/") + "/"
        skip = len(prefix)
        return sorted(
            name[skip:]
            for name in self.disk.names
            if name.startswith(prefix) and name != "/" and "/" not in name[skip:]
        )

    def exists(self, path: str) -> bool:
        """See `Disk`."""
        self.check_alive()
        return path in self.disk.names

    def is_dir(self, path: str) -> bool:
        """See `Disk`."""
        return self.exists(path) and self.disk.names[path] is None

    def size(self, path: str) -> int:
        """See `Disk`."""
        return len(self._file(path).data)

    def mtime_ms(self, path: str) -> int:
        """See `Disk`."""
        return self._file(path).mtime_ms

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """See `Disk`."""
        self._file(path).mtime_ms = mtime_ms

    def makedirs(self, path: str) -> None:
        """See `Disk`."""
        self.operation()
        parent = posixpath.dirname(path)
        if parent not in self.disk.names:
            self.makedirs(parent)
        if path not in self.disk.names:
            self.disk.change((path, None, True))

    def rename(self, source: str, target: str) -> None:
        """See `Disk`."""
        self.operation()
        if source not in self.disk.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        changes: list[_Change] = []
        for path, inode in list(self.disk.names.items()):
            if path == source or path.startswith(source + "/"):
                changes += [(path, inode, False), (target + path[len(source) :], inode, True)]
        self.disk.change(*changes)

    def unlink(self, path: str) -> None:
        """See `Disk`."""
        self.operation()
        if self.disk.names.get(path) is not None:
            self.disk.change((path, None, False))

    def rmtree(self, path: str) -> None:
        """See `Disk`."""
        self.operation()
        doomed = [name for name in self.disk.names if name == path or name.startswith(path + "/")]
        if doomed:
            self.disk.change(*((name, None, False) for name in doomed))

    def fsync_dir(self, path: str) -> None:
        """See `Disk`."""
        self.operation()
        self.disk.sync_names()

    def usage(self, path: str) -> tuple[int, int]:
        """See `Disk`."""
        return CAPACITY_BYTES, 0 if self.disk.full else CAPACITY_BYTES

    def lock(self, path: str) -> _Lock:
        """See `Disk`."""
        self.operation()
        if path in self.disk.locked:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self.disk.locked.add(path)
        return _Lock(self.disk, path)
