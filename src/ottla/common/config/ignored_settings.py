"""File of `ottla config recover`: names of dynamic settings that a start ignores."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from ottla.common.config.lockouts import ignorable
from ottla.common.errors import OperatorError
from ottla.common.platform.files import read_file

IGNORED_FILE = "ignored-dynamic-settings"
"""File in a data directory, with one name a line."""
_MAX_FILE_BYTES = 64 * 1024


def read_ignored(directories: Iterable[str]) -> frozenset[str]:
    """Return the settings named in the files of these data directories. Raises OperatorError for an unreadable file."""
    names: set[str] = set()
    for directory in directories:
        path = f"{directory}/{IGNORED_FILE}"
        try:
            lines = read_file(path, _MAX_FILE_BYTES).decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno == errno.ENOTDIR or _is_closed(directory):
                continue  # the start reports the problem of the directory
            raise OperatorError(f"{path} can't be read: {error.strerror}; remove it, or repair it") from error
        names.update(ignorable(line.strip(), path) for line in lines if line.strip())
    return frozenset(names)


def _is_closed(directory: str) -> bool:
    """Return whether nothing in the directory can be read."""
    try:
        read_file(f"{directory}/meta.properties", _MAX_FILE_BYTES)
    except OSError:
        return True
    return False
