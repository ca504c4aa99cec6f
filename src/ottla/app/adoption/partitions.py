"""Partition directories as a start finds them: segments to recover, and the position of a truncation.

Read only; the rules for valid batches are those of `storage.recovery.recovery`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from ottla.common.kafka.ids import Uuid
from ottla.common.platform.disk import Disk
from ottla.record.batch import BATCH_LENGTH, LOG_OVERHEAD, BatchView
from ottla.record.legacy.stored import iter_any_batches
from ottla.storage.files import names
from ottla.storage.files.checkpoints import CheckpointCorruption, read_partition_metadata
from ottla.storage.recovery.recovery import ValidBatches, Walk, batch_behind


class TruncationPoint(NamedTuple):
    """The position at which a start would truncate a log, because no valid batch follows."""

    path: str
    position: int
    size_bytes: int
    """Bytes that would be lost, in this file and in later segments."""
    end_offset: int
    defect: str
    loses_batches: bool
    """True if valid batches follow: then it is damage, not the torn end of a write."""


class StoredPartition(NamedTuple):
    """A partition directory."""

    path: str
    topic: str
    partition: int
    topic_id: Uuid | None
    segments: int
    size_bytes: int
    walked_bytes: int
    cut: TruncationPoint | None


def inspect_partition(
    disk: Disk, directory: str, name: str, *, recovery_point: int | None, gaps_end: int, everything: bool
) -> StoredPartition:
    """Inspect the segments that a start recovers: the active segment, and after an unclean shutdown all segments from
    `recovery_point`; with `everything`, all segments.

    `name` is the partition directory in `directory`; `gaps_end` as in `storage.recovery.recovery`. Raises OSError.
    """
    path = f"{directory}/{name}"
    topic, partition = names.parse_partition_dir(name) or (name, 0)
    bases = segment_bases(disk, path)
    first = 0 if everything else max(len(bases) - 1, 0)
    if recovery_point is not None and not everything:
        first = max(sum(1 for base in bases if base <= recovery_point) - 1, 0)
    sizes = [disk.size(f"{path}/{names.offset_name(base, names.LOG_SUFFIX)}") for base in bases]
    cut = None
    for number in range(first, len(bases)):
        following = bases[number + 1] if number + 1 < len(bases) and bases[number + 1] > gaps_end else None
        cut = _walk(disk, f"{path}/{names.offset_name(bases[number], names.LOG_SUFFIX)}", bases[number], following)
        if cut is not None:
            behind = sum(sizes[number + 1 :])
            cut = cut._replace(size_bytes=cut.size_bytes + behind, loses_batches=cut.loses_batches or behind > 0)
            break
    return StoredPartition(
        path, topic, partition, _topic_id(disk, path), len(bases), sum(sizes), sum(sizes[first:]), cut
    )


def segment_bases(disk: Disk, path: str) -> list[int]:
    """The base offsets of the segments in a directory, ascending."""
    found = (names.parse_offset(name, names.LOG_SUFFIX) for name in disk.listdir(path))
    return sorted(base for base in found if base is not None)


def stored_batches(disk: Disk, path: str, first_offset: int = 0) -> Iterator[BatchView]:
    """All valid batches of a partition directory that end above `first_offset`; a segment is read up to its first
    damage.

    Raises OSError, KafkaError.
    """
    bases = segment_bases(disk, path)
    for base, following in zip_longest(bases, bases[1:]):
        if following is not None and following <= first_offset:
            continue
        file = disk.open(f"{path}/{names.offset_name(base, names.LOG_SUFFIX)}", read_only=True)
        try:
            walk = Walk(next_offset=base)
            for position, header in ValidBatches(file, base, file.size(), walk):
                if walk.next_offset > first_offset:
                    yield from iter_any_batches(file.read(header[BATCH_LENGTH] + LOG_OVERHEAD, position))
        finally:
            file.close()


def _walk(disk: Disk, path: str, base_offset: int, following: int | None) -> TruncationPoint | None:
    """The truncation of a segment, or None. `following` is the next base offset if no gap is permitted before it."""
    file = disk.open(path, read_only=True)
    try:
        size = file.size()
        walk = Walk(next_offset=base_offset)
        for _ in ValidBatches(file, base_offset, size, walk):
            pass
        if not walk.defect and following is not None and walk.next_offset < following:
            walk.defect = f"offsets {walk.next_offset} to {following - 1} are missing"
        if not walk.defect:
            return None
        behind = batch_behind(file, size, walk)
        return TruncationPoint(path, walk.end, size - walk.end, walk.next_offset, walk.defect, behind)
    finally:
        file.close()


def _topic_id(disk: Disk, path: str) -> Uuid | None:
    try:
        return read_partition_metadata(disk, f"{path}/{names.PARTITION_METADATA}")
    except CheckpointCorruption:
        return None  # a start accepts it in the metadata log, too
