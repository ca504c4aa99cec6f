"""Damaged files of a node that does not run: bits that are not as they were written, in any file that a start survives.

Those are the newest segments, which a start reads after a kill; what is made anew from them; checkpoints; and either
metadata log or `quorum-state`. Of a batch it is what its CRC covers, and in checkpoints the highest bit of a letter,
since nothing vouches for the rest.

Left out: what a start refuses by name (metadata snapshots, `meta.properties`), complete segments, which no start reads.
"""

from __future__ import annotations

import posixpath

from ottla.quorum.metadata_log import QUORUM_STATE
from ottla.record.batch import ATTRIBUTES_POSITION, iter_batches
from ottla.sim.disk import SimDisk
from ottla.sim.rng import SimRng
from ottla.storage.names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    METADATA_DIR,
    RECOVERY_POINT_CHECKPOINT,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
)

_MADE_ANEW = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
_TEXTS = (LEADER_EPOCH_CHECKPOINT, RECOVERY_POINT_CHECKPOINT)


def damage_files(disk: SimDisk, data_dir: str, count: int, rng: SimRng) -> list[str]:
    """Change a bit of so many files of the node whose data directory that is; their paths."""
    metadata_dir = f"{data_dir}/{METADATA_DIR}"
    newest = {posixpath.dirname(path): path for path in sorted(disk.names) if path.endswith(LOG_SUFFIX)}
    of_metadata = rng.choice([newest.pop(metadata_dir), f"{metadata_dir}/{QUORUM_STATE}"])
    candidates = [of_metadata, *newest.values()]
    candidates += [
        path
        for path in sorted(disk.names)
        if path.endswith((*_MADE_ANEW, *_TEXTS)) and posixpath.dirname(path) != metadata_dir
    ]
    damaged = []
    for path in [of_metadata, *(rng.choice(candidates) for _ in range(count - 1))]:
        inode = disk.names.get(path)
        if inode is not None and inode.data:
            first, end = _covered(inode.data, rng) if path.endswith(LOG_SUFFIX) else (0, len(inode.data))
            mask = 0x80 if path.endswith(_TEXTS) else 1 << rng.randrange(8)
            inode.data[first + rng.randrange(end - first)] ^= mask
            inode.durable = bytes(inode.data)
            damaged.append(path)
    return damaged


def _covered(segment: bytearray, rng: SimRng) -> tuple[int, int]:
    """The bytes that the CRC of one of its batches covers; (first, end)."""
    batch = rng.choice(list(iter_batches(segment)))
    return batch.position + ATTRIBUTES_POSITION, batch.position + batch.size_bytes
