"""What a log's methods return, and what it tells its manager.

Left out: behaviour; these are plain values and one protocol.
"""

from __future__ import annotations

from typing import Protocol

from ottla.common.kafka.topic_partition import TopicPartition
from ottla.storage.files.log_config import LogConfig
from ottla.storage.segment.segment import SegmentRegion


class AppendResult:
    """What an append did. Times in ms since the epoch, -1 where the topic keeps the producer's timestamps."""

    __slots__ = ("base_offset", "duplicate", "last_offset", "log_append_time_ms", "log_start_offset", "needs_flush")

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        duplicate: bool,
        needs_flush: bool,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate
        self.needs_flush = needs_flush


class ReadResult:
    """Where a read starts and the bytes it found within its limit; `records` is None and `length` 0 without any.

    `records` are shorter than `length` where a large batch that the limit cuts is left out.
    """

    __slots__ = ("length", "offset", "position", "records", "segment_base_offset")

    def __init__(
        self, offset: int, segment_base_offset: int, position: int, records: SegmentRegion | None, length: int
    ) -> None:
        self.offset = offset
        self.segment_base_offset = segment_base_offset
        self.position = position
        self.records = records
        self.length = length


class LogEvents(Protocol):
    """What a log tells its manager, which knows it by topic and partition."""

    def log_configured(self, partition: TopicPartition, config: LogConfig) -> None:
        """The log's settings are new; the first of all, said while the log is made."""
        ...

    def flush_needed(self, partition: TopicPartition) -> None:
        """A segment is complete and not yet durable, or a full disk left a flush incomplete."""
        ...

    def log_truncated(self, partition: TopicPartition, offset: int) -> None:
        """The recovery point fell, and a cut at `offset` is next: a checkpoint that names more must go first.

        Raises OSError.
        """
        ...

    def records_lost(self, partition: TopicPartition, *, proved: bool) -> None:
        """The log is found without records that had been written to it; said before it is cut there.

        `proved`: whole batches lie behind the place, so that what is there is not what a power failure may leave of a
        write that nobody synced. Raises OSError.
        """
        ...

    def log_failed(self, partition: TopicPartition, error: OSError, action: str, *, lasting: bool) -> None:
        """The disk failed under the log; with a transient error (disk full) it goes on, unless the failure is lasting:
        then it takes no more appends."""
        ...

    def unlink_later(self, paths: list[str], delay_ms: int) -> None:
        """Remove renamed files once readers on other paths had time to let go."""
        ...
