"""Disk interface: every operation that the broker needs of a file system.

The real one (`ottla.app.disk`) maps each call to one system call; a simulator can tear writes, lose unflushed tails
and fail with ENOSPC behind the same calls. Errors are `OSError`, as the operating system raises them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """One open file. Positions and lengths in bytes."""

    @property
    def path(self) -> str: ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end, in order, finishing short writes; returns the bytes written.

        If an OSError leaves a part behind, the caller truncates to the previous size.
        """
        ...

    def append_from(self, source: File, position: int, length: int) -> int:
        """Append bytes of another file by reference; returns the number, less if unsupported or at the end of the
        source.

        The caller is the only writer. An OSError may leave a part behind, as with `append`.
        """
        ...

    def read(self, length: int, position: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file. May block on the disk."""
        ...

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` up to the end of the file; returns the bytes read. May block on the disk."""
        ...

    def try_read_into(self, view: memoryview, position: int) -> int:
        """Read only cached pages; may be short.

        Raises BlockingIOError if nothing of it is cached, or, with errno EOPNOTSUPP, if the file system cannot
        determine it; the caller then reads from the pool.
        """
        ...

    @property
    def can_send(self) -> bool:
        """Return whether `send` works; false if the file has no descriptor."""
        ...

    def send(self, socket: int, position: int, length: int) -> int:
        """Send bytes of the file to a non-blocking socket by reference; returns how many, 0 only at the file's end.

        Raises BlockingIOError if the socket's buffer is full, or if the file cannot be sent.
        """
        ...

    def is_cached(self, position: int, length: int) -> bool:
        """Return whether the page cache contains all of it, without reading it; True if the system cannot determine
        it.
        """
        ...

    def size(self) -> int: ...

    def is_at(self, path: str) -> bool:
        """Return whether `path` is a name of this file: false if it was removed or replaced while open."""
        ...

    def truncate(self, size: int) -> None: ...

    def fsync(self) -> None:
        """Make data and size durable (fdatasync suffices)."""
        ...

    def preallocate(self, position: int, length: int) -> None:
        """Reserve blocks beyond the end without changing the size; best effort, never raises."""
        ...

    def close(self) -> None: ...


class FileLock(Protocol):
    """An exclusive advisory lock, held until `release` or the end of the process."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are absolute strings."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open for reading and appending; `create` creates a missing file. Raises FileNotFoundError."""
        ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace `path` as a whole: temporary file, fsync, rename, fsync of the directory."""
        ...

    def overwrite(self, path: str, data: bytes, position: int = 0) -> None:
        """Overwrite a part of a file, unsynced; a file that is long enough mostly needs no new blocks.

        Raises FileNotFoundError. A failure may leave a part of it.
        """
        ...

    def listdir(self, path: str) -> list[str]:
        """Return the names in `path`, sorted."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def mtime_ms(self, path: str) -> int: ...

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """Set the modification time of a file; not synced."""
        ...

    def makedirs(self, path: str) -> None:
        """Create the directory and its parents; an existing one is accepted."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is ignored."""
        ...

    def rmtree(self, path: str) -> None:
        """Remove a directory with its contents; a missing one is ignored."""
        ...

    def fsync_dir(self, path: str) -> None: ...

    def usage(self, path: str) -> tuple[int, int]:
        """Return (total bytes, bytes free to this user) of the file system of `path`."""
        ...

    def boot_id(self) -> str:
        """ID of the current boot, which changes when the machine restarts and loses its page cache; empty when
        unknown.
        """
        ...

    def lock(self, path: str) -> FileLock:
        """Take the lock file at `path`; raises BlockingIOError if another process has it."""
        ...
