"""Which data directories a broker on ZooKeeper had beside each other: no znode says where a replica lies.

So each directory remembers the `directory.id` of all, its own and those that are gone by now too. A replica that the
cluster counts on and that lies in none of those that are here may lie in one that is missing, and is not begun anew.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from ottla.common.kafka.ids import uuid_from_string
from ottla.common.platform.disk import Disk
from ottla.storage.files.names import SIBLINGS_FILE

logger = logging.getLogger(__name__)


def remembered(disk: Disk, directory: str) -> set[str]:
    """What the directory remembers, as far as it can be read. Raises OSError."""
    path = f"{directory}/{SIBLINGS_FILE}"
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return set()
    found = set()
    for line in data.decode("utf-8", "replace").split():
        try:
            uuid_from_string(line)
        except ValueError:
            logger.warning("%s has %r, which is no directory.id, and is read past", path, line[:100])
        else:
            found.add(line)
    return found


def remember(disk: Disk, directory: str, ids: Collection[str]) -> None:
    """Durably. Raises OSError."""
    text = "".join(f"{each}\n" for each in sorted(ids))
    disk.write_atomic(f"{directory}/{SIBLINGS_FILE}", text.encode())
