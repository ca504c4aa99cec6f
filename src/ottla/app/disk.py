"""The real file system behind `ottla.common.platform.disk.Disk`.

Invariants:
- A descriptor is opened with O_APPEND, so that an append goes to the end even after a truncation by another descriptor;
  only `append_from` clears the flag temporarily.
- Short writes are completed here; short reads are returned only where the contract permits them.
- An OSError is not translated; it contains the path if the call has one.

Left out: mmap (measured harmful for appends), O_DIRECT, and verification of the durability of a file system: an
fdatasync that returned is trusted.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
from collections.abc import Callable, Sequence

from ottla.common.platform.disk import Buffer, File, FileLock

_IOV_MAX = 1024
_READ_BYTES = 1024 * 1024
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_OVERWRITE_FLAGS = os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""Opening a pipe in place of a file must not block; O_NONBLOCK has no effect on files."""
_WRITE_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
_FALLOC_FL_KEEP_SIZE = 1
_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_CANNOT_COPY = _UNSUPPORTED | {errno.EXDEV}
_RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)

_SYS_CACHESTAT = 451  # the same on x86, ARM, POWER, RISC-V and s390
_PAGE = os.sysconf("SC_PAGE_SIZE")

Cachestat = Callable[[int, int, int], int]
Fallocate = Callable[[int, int, int, int], int]


class RealFile:
    """One open file. Implements `ottla.common.platform.disk.File`."""

    __slots__ = ("_can_read_nowait", "_disk", "_fd", "_path", "can_send")

    def __init__(self, disk: RealDisk, path: str, fd: int) -> None:
        self._disk = disk
        self._path = path
        self._fd = fd
        self._can_read_nowait = _RWF_NOWAIT != 0
        self.can_send = sys.platform == "linux"

    @property
    def path(self) -> str:
        """The path at the time of opening; unchanged by a rename."""
        return self._path

    def fileno(self) -> int:
        """The descriptor, or -1 when closed."""
        return self._fd

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end; returns the bytes written. Raises OSError, possibly after a partial write."""
        if len(buffers) == 1:
            data = buffers[0]
            written = os.write(self._fd, data)
            if written == len(data):
                return written
            return written + self._append_rest([memoryview(data)[written:]])
        return self._append_rest([memoryview(buffer) for buffer in buffers])

    def _append_rest(self, views: list[memoryview]) -> int:
        total = 0
        while views:
            written = os.writev(self._fd, views[:_IOV_MAX])
            total += written
            done = 0
            while done < len(views) and written >= len(views[done]):
                written -= len(views[done])
                done += 1
            del views[:done]
            if views and written:
                views[0] = views[0][written:]
        return total

    def append_from(self, source: File, position: int, length: int) -> int:
        """Copy with copy_file_range(2): in one file system without user space copies, possibly with shared blocks."""
        if sys.platform != "linux" or not isinstance(source, RealFile):
            return 0
        end = self.size()
        copied = 0
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, flags & ~os.O_APPEND)  # the call rejects descriptors with O_APPEND
        try:
            while copied < length:
                count = os.copy_file_range(source.fileno(), self._fd, length - copied, position + copied, end + copied)
                if not count:
                    break
                copied += count
        except OSError as error:
            if error.errno not in _CANNOT_COPY:
                raise
        finally:
            fcntl.fcntl(self._fd, fcntl.F_SETFL, flags)
        return copied

    def read(self, length: int, position: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        pieces = [data]
        have = len(data)
        while have < length:
            data = os.pread(self._fd, length - have, position + have)
            if not data:
                break
            pieces.append(data)
            have += len(data)
        return b"".join(pieces)

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` up to the end of the file; returns the bytes read."""
        have = os.preadv(self._fd, [view], position)
        while 0 < have < len(view):
            more = os.preadv(self._fd, [view[have:]], position + have)
            if more == 0:
                break
            have += more
        return have

    def try_read_into(self, view: memoryview, position: int) -> int:
        """Read cached data; raises BlockingIOError if nothing is cached or the kernel does not report it."""
        if not self._can_read_nowait:
            raise BlockingIOError(errno.EOPNOTSUPP, "this file system has no non-blocking reads", self._path)
        try:
            return os.preadv(self._fd, [view], position, _RWF_NOWAIT)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            # tmpfs and some network file systems: the result is the same for all later reads of this file.
            self._can_read_nowait = False
            raise BlockingIOError(errno.EOPNOTSUPP, "this file system has no non-blocking reads", self._path) from None

    def send(self, socket: int, position: int, length: int) -> int:
        """One sendfile(2). Raises BlockingIOError if the socket buffer is full or the file system lacks support."""
        try:
            return os.sendfile(socket, self._fd, position, length)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            self.can_send = False
            raise BlockingIOError(errno.EOPNOTSUPP, "this file system does not support sendfile", self._path) from None

    def is_cached(self, position: int, length: int) -> bool:
        """Query cachestat(2), which does not load pages; True without it (before Linux 6.5)."""
        cached = self._disk.cached_pages(self._fd, position, length)
        return cached < 0 or cached > (position + length - 1) // _PAGE - position // _PAGE

    def size(self) -> int:
        """Size in bytes, without preallocated blocks."""
        return os.fstat(self._fd).st_size

    def is_at(self, path: str) -> bool:
        """See `File`."""
        try:
            return os.path.samestat(os.stat(path), os.fstat(self._fd))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def truncate(self, size: int) -> None:
        """Truncate or extend to `size` bytes; the current size releases preallocated blocks."""
        os.ftruncate(self._fd, size)

    def fsync(self) -> None:
        """Make data and size durable."""
        os.fdatasync(self._fd)

    def preallocate(self, position: int, length: int) -> None:
        """Reserve blocks beyond the end (FALLOC_FL_KEEP_SIZE); does nothing where that is not supported."""
        fallocate = self._disk.fallocate()
        if fallocate is not None:
            fallocate(self._fd, _FALLOC_FL_KEEP_SIZE, position, length)

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealFileLock:
    """A held lock; implements `ottla.common.platform.disk.FileLock`."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Release the lock; the lock file stays, because removing it would race with the next owner. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealDisk:
    """The machine's file systems. Implements `ottla.common.platform.disk.Disk`."""

    __slots__ = ("_cachestat", "_fallocate", "_fallocate_known")

    def __init__(self) -> None:
        self._cachestat: Cachestat | None = None
        self._fallocate: Fallocate | None = None
        self._fallocate_known = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open for reading and appending. Raises FileNotFoundError without `create`."""
        flags = _READ_FLAGS if read_only else _WRITE_FLAGS
        if create:
            flags |= os.O_CREAT
        return RealFile(self, path, os.open(path, flags, 0o644))

    def read_bytes(self, path: str) -> bytes:
        """The contents of a file. Raises OSError, also for anything but a regular file."""
        fd = os.open(path, _READ_FLAGS)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
            data = os.read(fd, min(status.st_size + 1, _READ_BYTES))
            if len(data) <= status.st_size < _READ_BYTES:
                return data
            pieces = [data]
            while pieces[-1]:
                pieces.append(os.read(fd, _READ_BYTES))
            return b"".join(pieces)
        finally:
            os.close(fd)

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace `path` atomically and durably; after a failure the old content is unchanged."""
        temporary = path + ".tmp"
        fd = os.open(temporary, _OVERWRITE_FLAGS | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(temporary, path)
        except OSError:
            self.unlink(temporary)
            raise
        self.fsync_dir(os.path.dirname(path) or ".")

    def overwrite(self, path: str, data: bytes, position: int = 0) -> None:
        """Overwrite a part of a file; only copy-on-write file systems need space for it."""
        fd = os.open(path, _OVERWRITE_FLAGS)
        try:
            view = memoryview(data)
            while view:
                count = os.pwrite(fd, view, position)
                view, position = view[count:], position + count
        finally:
            os.close(fd)

    def listdir(self, path: str) -> list[str]:
        """Names in `path`, sorted."""
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        """True if the path exists; False also if it cannot be examined."""
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        """True if `path` is a directory."""
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        """Bytes of a file."""
        return os.stat(path).st_size

    def mtime_ms(self, path: str) -> int:
        """Time of the last change, milliseconds since the Unix epoch."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """Set the modification time; not synced."""
        os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def makedirs(self, path: str) -> None:
        """Create the directory and its parents; an existing one is accepted."""
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing a file; durable after `fsync_dir`."""
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is ignored."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def rmtree(self, path: str) -> None:
        """Remove a directory tree without following links; a missing one is ignored."""
        for folder, folders, files in os.walk(path, topdown=False):
            for name in files:
                self.unlink(os.path.join(folder, name))
            for name in folders:
                child = os.path.join(folder, name)
                if os.path.islink(child):
                    self.unlink(child)
                else:
                    os.rmdir(child)
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return

    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def usage(self, path: str) -> tuple[int, int]:
        """(total bytes, bytes available to this user) of the file system of `path`."""
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    def boot_id(self) -> str:
        """See `Disk.boot_id`."""
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def lock(self, path: str) -> FileLock:
        """Take the lock file. Raises BlockingIOError if another process or file has it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock_descriptor(fd)
        except BaseException:
            os.close(fd)
            raise
        return RealFileLock(fd)

    def cached_pages(self, fd: int, position: int, length: int) -> int:
        """Number of cached pages in a range; -1 if the system does not report it."""
        if self._cachestat is None:
            self._cachestat = _load_cachestat()
        return self._cachestat(fd, position, length)

    def fallocate(self) -> Fallocate | None:
        """The C library's fallocate(2), for which Python has no mode argument; None if it is missing."""
        if not self._fallocate_known:
            self._fallocate_known = True
            self._fallocate = _load_fallocate()
        return self._fallocate


def _lock_descriptor(fd: int) -> None:
    """Lock the whole file for this open file description.

    An OFD lock (fcntl(2)) conflicts with the POSIX lock that Apache Kafka takes on the same `.lock`. Unlike a POSIX
    lock it also conflicts within a process, and is not lost when another descriptor of the file is closed.
    """
    command: int | None = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None:  # not Linux
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    request = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        fcntl.fcntl(fd, command, request)
    except PermissionError as error:  # POSIX permits EACCES instead of EAGAIN
        raise BlockingIOError(errno.EAGAIN, "the file is locked") from error


def _load_fallocate() -> Fallocate | None:
    import ctypes  # imported here: costs milliseconds, and only the first active segment needs it

    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    fallocate: Fallocate = function
    return fallocate


def _load_cachestat() -> Cachestat:
    """cachestat(2), for which Python and the C library have no function."""
    import ctypes  # imported here: costs milliseconds, and only large reads need it

    if sys.platform != "linux":
        return lambda fd, position, length: -1
    function = ctypes.PyDLL(None).syscall  # takes a microsecond: releasing the GIL would cost more
    function.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
    function.restype = ctypes.c_long
    request = (ctypes.c_uint64 * 2)()
    result = (ctypes.c_uint64 * 5)()
    request_at, result_at = ctypes.addressof(request), ctypes.addressof(result)

    def cached_pages(fd: int, position: int, length: int) -> int:
        request[0], request[1] = position, length
        return int(result[0]) if function(_SYS_CACHESTAT, fd, request_at, result_at, 0) == 0 else -1

    return cached_pages
