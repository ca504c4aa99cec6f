"""Operator error for a refused file operation: file, reason and fix in one sentence.

Shared, since every layer that opens files at the start can meet a full disk or a missing permission.
"""

from __future__ import annotations

import errno

from ottla.common.errors import OperatorError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def disk_refusal(error: OSError, path: str) -> OperatorError:
    """Return the message for `error`; `path` is used if the error has no file name."""
    what = error.filename or path
    if error.errno in _FULL:
        return OperatorError(
            f"the disk of {what} is full: free space there, or set log.dirs (--data-dir) to another disk"
        )
    if error.errno in _FORBIDDEN:
        return OperatorError(
            f"{what} can't be used ({error.strerror}): let the broker's user read and write it, or set log.dirs "
            "(--data-dir) to another directory"
        )
    return OperatorError(
        f"{what} can't be used ({error.strerror or error}): check the disk, or set log.dirs (--data-dir) to another one"
    )
