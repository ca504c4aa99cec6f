"""Small files that settings and options name: keys, certificates, tokens, plans.

What a data directory holds goes through `Disk`.
"""

from __future__ import annotations

import errno
import os
import stat


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


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
