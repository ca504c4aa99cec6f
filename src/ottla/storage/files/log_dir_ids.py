"""Ids of all data directories of a broker, for replicas whose directory no metadata contains.

On ZooKeeper no znode contains it. In a quorum it is unassigned from the creation of the replica until the controller
has recorded the broker's report. So each directory records the `directory.id` of all directories, including its own
and former ones. A replica that the cluster counts on, and that is in none of the present directories, may be in a
missing one and is not recreated.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from ottla.common.kafka.ids import uuid_from_string
from ottla.common.platform.disk import Disk
from ottla.storage.files.names import SIBLINGS_FILE

logger = logging.getLogger(__name__)


def remembered(disk: Disk, directory: str) -> set[str]:
    """Return the ids recorded in the directory, as far as they are readable. Raises OSError."""
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
            logger.warning("%s contains %r, which is not a directory.id: ignored", path, line[:100])
        else:
            found.add(line)
    return found


def remember(disk: Disk, directory: str, ids: Collection[str]) -> None:
    """Write the ids durably. Raises OSError."""
    text = "".join(f"{each}\n" for each in sorted(ids))
    disk.write_atomic(f"{directory}/{SIBLINGS_FILE}", text.encode())
