"""Small files that settings and options name: keys, certificates, tokens, plans; and others' files, opened to be read.

What a broker has in its data directories goes through `Disk`.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO


def read_file(path: str, limit: int) -> bytes:
    """A file of at most so many bytes, or what somebody writes into a pipe.

    Raises OSError: EFBIG for more, and as `read_start`.
    """
    return within(read_start(path, limit + 1), limit)


def within(data: bytes, limit: int) -> bytes:
    """`data`, for which one byte more than `limit` was asked. Raises OSError (EFBIG) where that came."""
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit} bytes, so it is hardly the right file")
    return data


def read_start(path: str, limit: int) -> bytes:
    """The first bytes of a file, at most so many, or of what somebody writes into a pipe.

    Raises OSError, also for a pipe that nobody writes into, where others wait until somebody does.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        data = file.read(limit)
        if not data and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode) and data is not None:
            raise OSError(errno.ENXIO, "it is a pipe that nobody writes into", path)
        os.set_blocking(file.fileno(), True)
        data = data or b""  # nothing: who writes has not begun yet
        return data + file.read(limit - len(data))


def open_regular(path: str, *, buffering: int = -1) -> BinaryIO:
    """A file, to be read from any place, and nothing in its place: who opens a pipe waits for a writer.

    Raises OSError.
    """
    file = open(path, "rb", buffering=buffering, opener=_open_at_once)  # noqa: SIM115  the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
