"""Copies of single files: shared blocks where the file system can, otherwise bytes.

A hard link is never created: a follower truncates complete segments in place, recovery truncates and repairs damaged
ones in place, and either would change the backup. Shared blocks (FICLONE: Btrfs, XFS) are copied before a write.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from typing import NamedTuple

_FICLONE = 0x40049409
_CANNOT_SHARE = frozenset(
    {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM, errno.ETXTBSY}
)
_CANNOT_COPY = _CANNOT_SHARE - {errno.EPERM, errno.ETXTBSY}
_CHUNK_BYTES = 1024 * 1024
_COPY_BYTES = 64 * 1024 * 1024
READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""Opening a pipe in place of a file must not block."""


class SourceChanged(Exception):
    """Files changed while they were copied; the next attempt copies the new ones."""


class CopiedFile(NamedTuple):
    """A file of the backup: its content is the first `size` bytes."""

    name: str
    size: int
    sha256: str


def copy_file(source: int, path: str, size: int) -> bool:
    """Copy the first `size` bytes of the open file to a new file, durably; returns whether blocks are shared.

    The modification time is copied too: retention uses that of segments without timestamps. Raises OSError, and
    SourceChanged if the source is shorter.
    """
    target = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        is_shared = _share(source, target, size)
        if not is_shared:
            _copy_bytes(source, target, size)
        times = os.fstat(source)
        os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
        os.fsync(target)
        return is_shared
    finally:
        os.close(target)


def digest(descriptor: int, size: int, path: str) -> str:
    """The SHA-256 of the first `size` bytes of the open file, in hexadecimal. Raises OSError."""
    found, position = hashlib.sha256(), 0
    while position < size:
        data = os.pread(descriptor, min(_CHUNK_BYTES, size - position), position)
        if not data:
            raise OSError(errno.EIO, f"it ends after {position} of {size} bytes", path)
        found.update(data)
        position += len(data)
    return found.hexdigest()


def described(directory: str, name: str) -> CopiedFile:
    """Size and checksum of a file. Raises OSError."""
    path = os.path.join(directory, name)
    descriptor = os.open(path, READ_FLAGS)
    try:
        size = os.fstat(descriptor).st_size
        return CopiedFile(name, size, digest(descriptor, size, path))
    finally:
        os.close(descriptor)


def _share(source: int, target: int, size: int) -> bool:
    if not size:
        return False
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _CANNOT_SHARE:
            return False
        raise
    if os.fstat(target).st_size < size:
        raise SourceChanged
    os.ftruncate(target, size)
    return True


def _copy_bytes(source: int, target: int, size: int) -> None:
    position = 0
    in_kernel = hasattr(os, "copy_file_range")
    while position < size:
        if in_kernel:
            try:
                count = os.copy_file_range(source, target, min(_COPY_BYTES, size - position), position, position)
            except OSError as error:
                if error.errno not in _CANNOT_COPY:
                    raise
                in_kernel = False
                continue
        else:
            data = os.pread(source, min(_CHUNK_BYTES, size - position), position)
            count = os.pwrite(target, data, position) if data else 0
        if not count:
            raise SourceChanged
        position += count
