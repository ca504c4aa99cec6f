"""Data directories: durable creation, and detection of used ones.

Invariant: a missing `meta.properties` is written only after `require_unused`. So a directory that lost its identity, or
a part of its files, is never formatted again over its remaining data.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Sequence

from ottla.common.errors import DataDirectoryError
from ottla.common.platform.disk import Disk
from ottla.storage.files import names

_LEFT_FILES = frozenset(
    {
        names.RECOVERY_POINT_CHECKPOINT,
        names.LOG_START_OFFSET_CHECKPOINT,
        names.HIGH_WATERMARK_CHECKPOINT,
        names.CLEAN_SHUTDOWN_FILE,
        names.RUNNING_FILE,
        names.SIBLINGS_FILE,
        names.CLEANER_REPORT_FILE,
    }
)
_SHOWN = 3


def make_durably(disk: Disk, path: str) -> None:
    """Create a directory and its parents, with fsync of every changed directory; blocks. Raises OSError."""
    holders = []
    missing = path
    while not disk.exists(missing):
        holder = posixpath.dirname(missing)
        holders.append(holder or ".")
        if holder in (missing, ""):
            break
        missing = holder
    disk.makedirs(path)
    for holder in holders:
        disk.fsync_dir(holder)


def partition_directories(disk: Disk, directory: str) -> list[str]:
    """Names of the partition directories in a data directory, without the metadata log and stray logs."""
    return [
        name
        for name in disk.listdir(directory)
        if name != names.METADATA_DIR
        and names.parse_partition_dir(name) is not None
        and disk.is_dir(f"{directory}/{name}")
    ]


def require_unused(disk: Disk, directory: str, besides: Collection[str] = ()) -> None:
    """Raise DataDirectoryError if a node's data is present; an interrupted formatting is accepted. Raises OSError.

    `besides` are names known to the caller.
    """
    if not disk.exists(directory):
        return
    left = [name for name in partition_directories(disk, directory) if name not in besides]
    for name in disk.listdir(directory):
        retired = name.endswith((names.STRAY_DIR_SUFFIX, names.DELETE_DIR_SUFFIX))
        if name in _LEFT_FILES or (retired and disk.is_dir(f"{directory}/{name}")):
            left.append(name)
    metadata = f"{directory}/{names.METADATA_DIR}"
    if disk.exists(metadata) and any(not _formatted_only(name) for name in disk.listdir(metadata)):
        left.append(names.METADATA_DIR)
    if left:
        raise DataDirectoryError(
            f"the data directory {directory} has no {names.META_PROPERTIES}, but contains files of a node "
            f"({shown(left)}): restore that file from a copy, or set log.dirs (--data-dir) to another directory"
        )


def unformatted_metadata_directory(path: str, other: str) -> DataDirectoryError:
    """Return the error for a new metadata log directory `path` next to the formatted directory `other`."""
    return DataDirectoryError(
        f"the data directory {path} of the metadata log is not formatted, though {other} is: mount its disk, or set "
        "metadata.log.dir to the directory that has the metadata log"
    )


def reason_of(error: OSError, directory: str) -> str:
    """Return why a data directory is unusable: the failed operation, and its file, if known."""
    where = "" if error.filename in (None, directory) else f" ({error.filename})"
    return f"{error.strerror or error}{where}"


def shown(found: Sequence[str]) -> str:
    """Return a few names for a message."""
    return ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")


def _formatted_only(name: str) -> bool:
    return name == names.BOOTSTRAP_CHECKPOINT or name.endswith(names.TEMPORARY_SUFFIX)
