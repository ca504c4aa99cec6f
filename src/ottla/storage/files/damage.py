"""Damage in a segment: offsets of a partition with batches that are invalid on this disk.

Detection is in `segment_scrub`; the owner of the replica decides about the consequences.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.common.kafka.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged range of one segment; both offsets are inclusive."""

    partition: TopicPartition
    segment: int
    """Base offset of the segment."""
    first_offset: int
    last_offset: int
    """Last offset of the segment if the framing is lost: the start of the next batch is unknown then."""
    reason: str

    def __str__(self) -> str:
        """Return the range and the reason, for a message that starts with the file."""
        return f"offsets {self.first_offset} to {self.last_offset} can't be trusted: {self.reason}"
