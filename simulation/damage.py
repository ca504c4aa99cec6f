"""Damages files of a stopped node: flips a bit in any file whose damage a start survives.

The damaged place is drawn by its kind, so that small files are hit as often as large ones. In logs it is in the newest
segment, which a start reads after a kill: bytes covered by the CRC of a batch, the fields before it that no checksum
covers, and the files next to segments. Either the metadata log or `quorum-state` is damaged each time, never both.

Not damaged: files that a start rejects by name (metadata snapshots, `meta.properties`, both of the above), complete
segments, which no start reads, offsets in compacted logs, where gaps are valid, and `.ottla_siblings`,
which no node of a quorum reads (`tests/zookeeper/test_directories.py` flips its bits).
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection
from typing import NamedTuple

from ottla.quorum.metadata_log import QUORUM_STATE
from ottla.record.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    LEADER_EPOCH_POSITION,
    LENGTH_POSITION,
    MAGIC_POSITION,
    iter_batches,
)
from ottla.storage.files.names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    METADATA_DIR,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    RUNNING_FILE,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from simulation.disk import SimDisk
from simulation.rng import SimRng

_FIELDS = {
    "base offset": (0, LENGTH_POSITION),
    "length": (LENGTH_POSITION, LEADER_EPOCH_POSITION),
    "leader epoch": (LEADER_EPOCH_POSITION, MAGIC_POSITION),
    "magic": (MAGIC_POSITION, CRC_POSITION),
    "CRC": (CRC_POSITION, ATTRIBUTES_POSITION),
}
"""Byte range within a batch."""
_BATCH = "batch"
_BASE_OFFSET = "base offset"
_OF_LOGS = (_BATCH, *_FIELDS)
_BESIDE = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
    RUNNING_FILE,
)
_KINDS = (*_OF_LOGS, *_BESIDE, TRANSACTION_INDEX_SUFFIX, *_CHECKPOINTS)
_OF_METADATA = (*_OF_LOGS, *[QUORUM_STATE] * len(_OF_LOGS))


class BitFlip(NamedTuple):
    """A flipped bit."""

    kind: str
    path: str
    position: int
    mask: int

    def __str__(self) -> str:
        return f"{self.kind} at byte {self.position} of {self.path} by {self.mask:02x}"


def damage_files(disk: SimDisk, data_dir: str, count: int, rng: SimRng, compacted: Collection[str]) -> list[BitFlip]:
    """Flip a bit in at most this many files of the node's data directory; `compacted` logs, by directory name."""
    metadata_dir = f"{data_dir}/{METADATA_DIR}"
    files = {path: inode for path, inode in sorted(disk.names.items()) if inode is not None}
    newest = {posixpath.dirname(path): path for path in files if path.endswith(LOG_SUFFIX)}
    metadata_log = newest.pop(metadata_dir)
    first = rng.choice(_OF_METADATA)
    damaged: dict[str, BitFlip] = {}
    for number, kind in enumerate((first, *(rng.choice(_KINDS) for _ in range(count - 1)))):
        if not number:
            paths = [f"{metadata_dir}/{QUORUM_STATE}" if kind == QUORUM_STATE else metadata_log]
        elif kind == _BASE_OFFSET:
            paths = [path for folder, path in newest.items() if posixpath.basename(folder) not in compacted]
        elif kind in _OF_LOGS:
            paths = list(newest.values())
        elif kind == TRANSACTION_INDEX_SUFFIX:  # a start reads only this one
            paths = [path.removesuffix(LOG_SUFFIX) + kind for path in newest.values()]
        else:
            paths = [path for path in files if path.endswith(kind) and posixpath.dirname(path) != metadata_dir]
        paths = [path for path in paths if path in files and files[path].data and path not in damaged]
        if paths:
            path = rng.choice(paths)
            data = files[path].data
            begin, end = _place(data, kind, rng) if kind in _OF_LOGS else (0, len(data))
            bit = damaged[path] = BitFlip(kind, path, begin + rng.randrange(end - begin), 1 << rng.randrange(8))
            data[bit.position] ^= bit.mask
            files[path].durable = bytes(data)
    return list(damaged.values())


def _place(segment: bytearray, kind: str, rng: SimRng) -> tuple[int, int]:
    """Byte range of that kind in one of its batches."""
    batch = rng.choice(list(iter_batches(segment)))
    first, end = _FIELDS.get(kind, (ATTRIBUTES_POSITION, batch.size_bytes))
    return batch.position + first, batch.position + end
