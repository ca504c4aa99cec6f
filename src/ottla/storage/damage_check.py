"""Whether the batches of one segment are what was written: framing, offsets, CRC, and the leader epoch, which no CRC
covers.

A follower that refuses a batch can't say so to its leader; the leader looks into the segment that the follower asks for
again and again. The bytes are read in the pool, up to where the segment ended when the look began.

Left out: looking without a reason, and what follows from damage (`replica.mending`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.common.disk import File
from ottla.common.topic_partition import TopicPartition
from ottla.record.batch import BASE_OFFSET, LAST_OFFSET_DELTA, MAGIC, MAGIC_V2, PARTITION_LEADER_EPOCH
from ottla.storage.damage import Damage
from ottla.storage.epochs import UNDEFINED_EPOCH, LeaderEpochCache
from ottla.storage.recovery import ValidBatches, Walk


class Extent(NamedTuple):
    """What a segment should hold, as the log knows it."""

    partition: TopicPartition
    base_offset: int
    end_offset: int
    """Where the next segment begins, or the log ends."""
    size_bytes: int
    epochs: Sequence[tuple[int, int]]
    """(leader epoch, start offset) of the log."""
    gaps_allowed: bool
    """Offsets may be missing, since the log was compacted."""


def find_damage(file: File, extent: Extent) -> Damage | None:
    """The range from the first batch that is not what it should be to the end of the segment. Raises OSError."""
    epochs = LeaderEpochCache(list(extent.epochs))
    walk = Walk(next_offset=extent.base_offset)
    expected = extent.base_offset
    for _, header in ValidBatches(file, extent.base_offset, extent.size_bytes, walk):
        base_offset = header[BASE_OFFSET]
        epoch = epochs.epoch_for_offset(base_offset)
        if header[MAGIC] == MAGIC_V2 and UNDEFINED_EPOCH != epoch != header[PARTITION_LEADER_EPOCH]:
            reason = (
                f"the batch at offset {base_offset} says leader epoch {header[PARTITION_LEADER_EPOCH]}, not {epoch}"
            )
            return _damage(extent, base_offset, reason)
        if base_offset != expected and not extent.gaps_allowed:
            return _damage(extent, expected, f"offset {base_offset} follows after {expected - 1}")
        expected = base_offset + header[LAST_OFFSET_DELTA] + 1
    if walk.defect:
        return _damage(extent, walk.next_offset, walk.defect)
    if walk.next_offset > extent.end_offset or (walk.next_offset < extent.end_offset and not extent.gaps_allowed):
        return _damage(
            extent, min(expected, extent.end_offset - 1), f"its batches end at offset {walk.next_offset - 1}"
        )
    return None


def _damage(extent: Extent, first_offset: int, reason: str) -> Damage:
    last_offset = extent.end_offset - 1
    return Damage(extent.partition, extent.base_offset, min(first_offset, last_offset), last_offset, reason)
