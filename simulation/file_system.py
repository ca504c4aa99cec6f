"""In-memory file system with power failures: the one disk model, for the simulator and for storage tests.

`FileSystem` is the disk of a machine, `MemoryDisk` the access of one process. The page cache is separate from durable
data. The end of a process changes neither. A power failure keeps synced data; of the rest, file data is truncated at
any point or ends in garbage, and name changes survive up to some point of their order, as on a journaling file system.
A directory sync makes only the names in that directory durable, which is all that POSIX guarantees: the creator of a
directory has to sync its parent too.

`MemoryDisk` itself never fails. Subclasses with failures override `before` (any operation), `append` (torn writes),
`room` and `is_cold`.

Not included: mmap, descriptors for sendfile, permanent hard links.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Sequence

from ottla.common.errors import InvariantError
from ottla.common.platform.clock import Clock, Rng
from ottla.common.platform.disk import Buffer, File

CAPACITY_BYTES = 1 << 40


class Inode:
    """A file's content, as read and as durable."""

    __slots__ = ("data", "durable", "mtime_ms")

    def __init__(self, data: bytes = b"", mtime_ms: int = 0) -> None:
        self.data = bytearray(data)
        self.durable = data
        self.mtime_ms = mtime_ms


Change = tuple[str, Inode | None, bool]
"""(path, inode or None for a directory, whether it exists)."""
Journaled = tuple[str, bool, Sequence[Change]]
"""(directory of the first change, whether a directory with others was moved or removed, changes)."""


class FileSystem:
    """The state that persists across processes."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.boots = 0
        """Number of restarts of the machine."""
        self.locked: set[str] = set()
        self.names: dict[str, Inode | None] = {"/": None}
        self._durable_names: dict[str, Inode | None] = {"/": None}
        self._journal: list[Journaled] = []

    @property
    def used_bytes(self) -> int:
        return sum(len(inode.data) for inode in self.names.values() if inode is not None)

    def change(self, *changes: Change) -> None:
        """Change names at once; durable with the next sync of the directory of the first."""
        self._apply(self.names, changes)
        moves = len(changes) > 1 and any(inode is None for _, inode, _ in changes)
        self._journal.append((posixpath.dirname(changes[0][0]), moves, changes))

    @staticmethod
    def _apply(names: dict[str, Inode | None], changes: Sequence[Change]) -> None:
        for path, inode, present in changes:
            if present:
                names[path] = inode
            else:
                names.pop(path, None)

    def sync_directory(self, directory: str) -> None:
        """Make the name changes of one directory durable; of others only the content of a moved or removed one."""
        whole = 0
        for number, (_, moves, _) in enumerate(self._journal, 1):
            if moves:
                whole = number
        later = []
        for number, entry in enumerate(self._journal):
            of, _, changes = entry
            if number < whole or of == directory:
                self._apply(self._durable_names, changes)
            else:
                later.append(entry)
        self._journal = later

    def process_died(self) -> None:
        """Its locks are released; the page cache stays."""
        self.locked.clear()

    def lose_power(self, rng: Rng) -> None:
        """Lose data that is not durable, by chance."""
        self.process_died()
        self.boots += 1
        for _, _, changes in self._journal[: rng.randrange(len(self._journal) + 1)]:
            self._apply(self._durable_names, changes)
        self._journal.clear()
        for path in sorted(self._durable_names):  # a file in a directory that has no durable name is lost with it
            if posixpath.dirname(path) not in self._durable_names:
                del self._durable_names[path]
        # Each inode once, in the order of names: a file may have two temporarily.
        for inode in {id(inode): inode for inode in self._durable_names.values() if inode is not None}.values():
            inode.data = bytearray(_left_of(inode, rng))
            inode.durable = bytes(inode.data)
        self.names = dict(self._durable_names)


def _left_of(inode: Inode, rng: Rng) -> bytes:
    data, durable = bytes(inode.data), inode.durable
    if data == durable:
        return data
    if not data.startswith(durable):
        return durable if rng.randrange(2) else data
    keep = len(durable) + rng.randrange(len(data) - len(durable) + 1)
    kind = rng.randrange(3)
    if kind == 0:
        return data[:keep]
    rest = bytes(len(data) - keep) if kind == 1 else rng.random_bytes(len(data) - keep)
    return data[:keep] + rest


class MemoryFile:
    """An open file. Implements `ottla.common.platform.disk.File`."""

    __slots__ = ("_disk", "_inode", "path")
    can_send = False

    def __init__(self, disk: MemoryDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._inode: Inode | None = inode
        self.path = path
        disk.open_count += 1

    def _live(self) -> Inode:
        if self._inode is None:
            raise InvariantError(f"{self.path} is used after it was closed")
        return self._inode

    def append(self, buffers: Sequence[Buffer]) -> int:
        """See `File`."""
        data = b"".join(buffers)
        self._disk.append(self._live(), data, self.path)
        return len(data)

    def append_from(self, source: File, position: int, length: int) -> int:
        """See `File`."""
        return self.append((source.read(length, position),))

    def read(self, length: int, position: int) -> bytes:
        """See `File`."""
        self._disk.before("read", self.path)
        return bytes(self._live().data[position : position + length])

    def read_into(self, view: memoryview, position: int) -> int:
        """See `File`."""
        data = self.read(len(view), position)
        view[: len(data)] = data
        return len(data)

    def try_read_into(self, view: memoryview, position: int) -> int:
        """See `File`."""
        if self._disk.is_cold():
            raise BlockingIOError(errno.EAGAIN, "not cached", self.path)
        return self.read_into(view, position)

    def send(self, socket: int, position: int, length: int) -> int:
        """See `File`; a file in memory has no descriptor for `sendfile`."""
        raise BlockingIOError(errno.EOPNOTSUPP, "no descriptor", self.path)

    def is_cached(self, position: int, length: int) -> bool:
        """See `File`."""
        return True

    def size(self) -> int:
        """See `File`."""
        self._disk.before("look", self.path)
        return len(self._live().data)

    def is_at(self, path: str) -> bool:
        """See `File`."""
        self._disk.before("look", self.path)
        return self._disk.files.names.get(path) is self._live()

    def truncate(self, size: int) -> None:
        """See `File`."""
        self._disk.before("truncate", self.path)
        data = self._live().data
        if size < len(data):
            del data[size:]
        else:
            data.extend(bytes(size - len(data)))

    def fsync(self) -> None:
        """See `File`."""
        self._disk.before("fsync", self.path)
        inode = self._live()
        inode.durable = bytes(inode.data)

    def preallocate(self, position: int, length: int) -> None:
        """See `File`; nothing to reserve here."""

    def close(self) -> None:
        """See `File`."""
        if self._inode is not None:
            self._inode = None
            self._disk.open_count -= 1


class MemoryLock:
    """A lock that a process holds."""

    __slots__ = ("_files", "_path")

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self._path = path

    def release(self) -> None:
        """See `FileLock`."""
        self._files.locked.discard(self._path)


class MemoryDisk:
    """A file system as one process sees it. Implements `ottla.common.platform.disk.Disk`."""

    def __init__(self, files: FileSystem) -> None:
        self.files = files
        self.open_count = 0
        """Files that are open."""

    # -- overridable failures

    def before(self, action: str, path: str) -> None:
        """Called before an operation, which is atomic, and not executed if this raises.

        `action` is "look", "listdir", "read" or "open", which change nothing, or "append" (also of a whole file),
        "write", "truncate", "fsync", "create", "rename", "makedirs", "unlink", "rmtree" or "lock".
        """

    def append(self, inode: Inode, data: bytes, path: str) -> None:
        """Append bytes to a file; raises OSError if not all of them are written."""
        self.before("append", path)
        room = self.room()
        inode.data += data[:room]
        if room < len(data):
            raise _no_space(path)
        inode.mtime_ms = self.files.clock.time_ms()

    def room(self) -> int:
        """Free bytes."""
        return max(CAPACITY_BYTES - self.files.used_bytes, 0)

    def is_cold(self) -> bool:
        """Whether the next read misses the page cache."""
        return False

    # -- Disk

    def boot_id(self) -> str:
        """See `Disk`."""
        return f"boot-{self.files.boots}"

    def _file(self, path: str) -> Inode:
        inode = self.files.names.get(path)
        if inode is None:
            if path in self.files.names:
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode

    def _need_parent(self, path: str) -> None:
        if posixpath.dirname(path) not in self.files.names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        """See `Disk`."""
        self.before("open", path)
        if create and path not in self.files.names:
            self.before("create", path)
            self._need_parent(path)
            self.files.change((path, Inode(mtime_ms=self.files.clock.time_ms()), True))
        return MemoryFile(self, path, self._file(path))

    def read_bytes(self, path: str) -> bytes:
        """See `Disk`."""
        self.before("read", path)
        return bytes(self._file(path).data)

    def write_atomic(self, path: str, data: bytes) -> None:
        """See `Disk`."""
        self.before("append", path)
        if self.room() < len(data):
            raise _no_space(path)
        self._need_parent(path)
        self.files.change((path, Inode(bytes(data), self.files.clock.time_ms()), True))
        self.files.sync_directory(posixpath.dirname(path))

    def overwrite(self, path: str, data: bytes, position: int = 0) -> None:
        """See `Disk`."""
        self.before("write", path)
        inode = self._file(path)
        if self.room() < position + len(data) - len(inode.data):
            raise _no_space(path)
        inode.data[position : position + len(data)] = data
        inode.mtime_ms = self.files.clock.time_ms()

    def listdir(self, path: str) -> list[str]:
        """See `Disk`."""
        self.before("listdir", path)
        prefix = path.rstrip("/") + "/"
        skip = len(prefix)
        below = [name[skip:] for name in self.files.names if name.startswith(prefix)]
        return sorted(name for name in below if name and "/" not in name)

    def exists(self, path: str) -> bool:
        """See `Disk`."""
        self.before("look", path)
        return path in self.files.names

    def is_dir(self, path: str) -> bool:
        """See `Disk`."""
        return self.exists(path) and self.files.names[path] is None

    def size(self, path: str) -> int:
        """See `Disk`."""
        self.before("look", path)
        return len(self._file(path).data)

    def mtime_ms(self, path: str) -> int:
        """See `Disk`."""
        self.before("look", path)
        return self._file(path).mtime_ms

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """See `Disk`."""
        self.before("write", path)
        self._file(path).mtime_ms = mtime_ms

    def makedirs(self, path: str) -> None:
        """See `Disk`."""
        self.before("makedirs", path)
        parent = posixpath.dirname(path)
        if parent not in self.files.names:
            self.makedirs(parent)
        if path not in self.files.names:
            self.files.change((path, None, True))

    def rename(self, source: str, target: str) -> None:
        """See `Disk`."""
        self.before("rename", source)
        names = self.files.names
        if source not in names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        moved = [source]
        if names[source] is None:
            moved = [path for path in names if path == source or path.startswith(source + "/")]
        changes: list[Change] = []
        for path in moved:
            changes += [(path, names[path], False), (target + path[len(source) :], names[path], True)]
        self.files.change(*changes)

    def unlink(self, path: str) -> None:
        """See `Disk`."""
        self.before("unlink", path)
        if self.files.names.get(path) is not None:
            self.files.change((path, None, False))

    def rmtree(self, path: str) -> None:
        """See `Disk`."""
        self.before("rmtree", path)
        doomed = [name for name in self.files.names if name == path or name.startswith(path + "/")]
        if doomed:
            self.files.change(*((name, None, False) for name in doomed))

    def fsync_dir(self, path: str) -> None:
        """See `Disk`."""
        self.before("fsync", path)
        self.files.sync_directory(path)

    def usage(self, path: str) -> tuple[int, int]:
        """See `Disk`."""
        return CAPACITY_BYTES, self.room()

    def lock(self, path: str) -> MemoryLock:
        """See `Disk`."""
        self.before("lock", path)
        if path in self.files.locked:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self.files.locked.add(path)
        return MemoryLock(self.files, path)


def _no_space(path: str) -> OSError:
    return OSError(errno.ENOSPC, "no space left on device", path)
