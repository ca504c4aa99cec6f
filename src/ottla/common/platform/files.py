"""Small files named by settings and options (keys, certificates, tokens, plans), and foreign files opened for reading.

Files in the broker's data directories go through `Disk`.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

from ottla.common.errors import OperatorError


def read_file(path: str, limit: int) -> bytes:
    """Read a file, or a pipe, of at most `limit` bytes.

    Raises OSError: EFBIG for a longer one, and the errors of `read_start`.
    """
    return within(read_start(path, limit + 1), limit)


def within(data: bytes, limit: int) -> bytes:
    """Return `data`, which was read with one byte more than `limit`. Raises OSError (EFBIG) if it is longer."""
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit} bytes, so it is probably the wrong file")
    return data


def read_start(path: str, limit: int) -> bytes:
    """Read at most `limit` first bytes of a file or pipe.

    Raises OSError, also for a pipe without a writer: a plain open would block until a writer opens it.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        data = file.read(limit)
        if not data and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode) and data is not None:
            raise OSError(errno.ENXIO, "it is a pipe without a writer", path)
        os.set_blocking(file.fileno(), True)
        data = data or b""  # empty: the writer has not started yet
        return data + file.read(limit - len(data))


def open_regular(path: str, *, buffering: int = -1) -> BinaryIO:
    """Open a regular file for random reads; opening a pipe instead would block until a writer opens it.

    Raises OSError.
    """
    file = open(path, "rb", buffering=buffering, opener=_open_at_once)  # noqa: SIM115  the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def prepare_ready_file(path: str | None) -> str | None:
    """The absolute path; the file of an earlier run is removed, since it is outdated. Raises OperatorError."""
    if path is None:
        return None
    path = os.path.abspath(path)
    folder = os.path.dirname(path)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OperatorError(f"no file can be created in {folder}: choose another path for --ready-file")
    try:
        os.unlink(path)
    except FileNotFoundError:
        return path
    except OSError as error:
        raise OperatorError(
            f"the ready file {path} can't be replaced: {error.strerror}: choose another path with --ready-file"
        ) from error
    return path
