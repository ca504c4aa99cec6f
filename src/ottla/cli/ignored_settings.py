"""The file of `ottla config recover`: names of dynamic settings that a node ignores; a start reads it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from ottla.common.disk_refusal import disk_refusal
from ottla.common.errors import OperatorError
from ottla.common.files import read_file
from ottla.common.lockouts import ignorable

IGNORED_FILE = "ignored-dynamic-settings"
"""One name a line; in a data directory."""
_MAX_FILE_BYTES = 64 * 1024


def read_ignored(directories: Iterable[str]) -> frozenset[str]:
    """What the files in these data directories name. Raises OperatorError for a file that cannot be read."""
    names: set[str] = set()
    for directory in directories:
        path = os.path.join(directory, IGNORED_FILE)
        try:
            lines = read_file(path, _MAX_FILE_BYTES).decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno == errno.ENOTDIR:
                continue  # the start reports what is wrong with the directory
            raise OperatorError(f"{path} can't be read: {error.strerror}; remove it, or repair it") from error
        names.update(ignorable(line.strip(), path) for line in lines if line.strip())
    return frozenset(names)


def write_ignored(directory: str, names: Iterable[str]) -> frozenset[str]:
    """Replace the file in a data directory; without names it is removed. Raises OperatorError."""
    path = os.path.join(directory, IGNORED_FILE)
    if not os.path.exists(os.path.join(directory, "meta.properties")):
        raise OperatorError(f"{directory} is not a data directory of a node: name one of log.dirs with --data-dir")
    chosen = frozenset(ignorable(name, "--ignore") for name in names)
    try:
        if not chosen:
            if os.path.lexists(path):
                os.unlink(path)
            return chosen
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in sorted(chosen))
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".tmp", path)
    except OSError as error:
        raise disk_refusal(error, directory) from error
    return chosen
