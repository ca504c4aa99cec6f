"""A partition in two log directories of a node, found before logs are opened.

Completes an interrupted move (`future_logs`). Of two logs, one without any record is renamed `-delete`. It is left of
a log that was created elsewhere after a disk failure. Two logs with records refuse the start. An unreadable directory
goes offline.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.common.errors import DataDirectoryError, InvariantError
from ottla.common.platform.clock import Rng
from ottla.common.platform.disk import Disk
from ottla.storage.directory.future_logs import end_swaps
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.files import names

logger = logging.getLogger(__name__)


def resolve_duplicates(disk: Disk, rng: Rng, directories: Sequence[LogDirectory]) -> None:
    """Leave each partition in one of the directories that are online.

    Raises DataDirectoryError for two logs with records, and for a disk that fails meanwhile.
    """
    found: dict[str, LogDirectory] = {}
    _end_swaps(disk, rng, directories)
    for directory in directories:
        if directory.health.offline is not None:
            continue
        try:
            held = directory.partition_names()
        except OSError as error:
            directory.take_offline(error, "opening")
            continue
        for name in held:
            other = found.setdefault(name, directory)
            if other is not directory:
                found[name] = _keep_one(disk, rng, name, other, directory)


def _end_swaps(disk: Disk, rng: Rng, directories: Sequence[LogDirectory]) -> None:
    usable = []
    for directory in directories:
        try:
            directory.partition_names()
        except OSError as error:
            directory.take_offline(error, "opening")
        else:
            usable.append(directory)
    try:
        end_swaps(disk, rng, usable)
    except OSError as error:
        raise DataDirectoryError(
            f"a move between data directories can't be completed, {error.filename or ''} "
            f"{error.strerror or error}: repair that disk of log.dirs"
        ) from error


def _keep_one(disk: Disk, rng: Rng, name: str, one: LogDirectory, other: LogDirectory) -> LogDirectory:
    """Return the directory with the log, after the one without records was discarded. Raises DataDirectoryError."""
    try:
        for left, kept in ((other, one), (one, other)):
            if _only_began(disk, f"{left.path}/{name}"):
                logger.warning(
                    "%s/%s is empty and also exists in %s: removing the empty one", left.path, name, kept.path
                )
                _discard(disk, rng, left.path, name)
                return kept
    except OSError as error:
        raise DataDirectoryError(
            f"the partition {name} is in {one.path} and {other.path}, {error.filename or ''} "
            f"{error.strerror or error}: repair that disk of log.dirs"
        ) from error
    raise DataDirectoryError(
        f"the partition {name} is in {one.path}/{name} and {other.path}/{name}: keep the log that ends at the higher "
        "offset (`ottla log dump` shows it), move the other partition directory out of log.dirs; if a disk failed "
        "recently, move the one on that disk"
    )


def _only_began(disk: Disk, path: str) -> bool:
    """Return whether a partition directory contains at most the files of a new log. Raises OSError."""
    segments = [each for each in disk.listdir(path) if names.LOG_SUFFIX in each]
    first = names.offset_name(0, names.LOG_SUFFIX)
    return all(each == first and not disk.size(f"{path}/{each}") for each in segments)


def _discard(disk: Disk, rng: Rng, directory: str, name: str) -> None:
    """Rename a partition directory that is not a log here; the start removes it. Raises OSError."""
    key = names.parse_partition_dir(name)
    if key is None:
        raise InvariantError(f"{name} is not a partition directory")
    retired = names.retired_partition_dir(*key, rng.random_bytes(16), names.DELETE_DIR_SUFFIX)
    disk.rename(f"{directory}/{name}", f"{directory}/{retired}")
