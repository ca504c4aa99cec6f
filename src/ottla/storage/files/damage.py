"""Damage in a segment: offsets of a partition whose batches on this disk can't be trusted any more.

Left out: finding it (`segment_scrub`), and what follows from it (who owns the replica).
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.common.kafka.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of one segment that can't be trusted; both offsets are inclusive."""

    partition: TopicPartition
    segment: int
    """The base offset of the segment."""
    first_offset: int
    last_offset: int
    """That of the segment's last batch where the framing is lost: where the next batch begins is not known then."""
    reason: str

    def __str__(self) -> str:
        """The range and the reason, for a message that names the file before."""
        return f"offsets {self.first_offset} to {self.last_offset} can't be trusted: {self.reason}"
