"""Making directories that are still there after a power failure: their names are synced in those above them."""

from __future__ import annotations

import posixpath

from ottla.common.disk import Disk


def make_durably(disk: Disk, path: str) -> None:
    """Make a directory and its parents, with fsync of every directory that got a new name; blocks. Raises OSError."""
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
