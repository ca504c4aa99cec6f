"""Results of a log's methods, and its events for the manager: plain values and one protocol."""

from __future__ import annotations

from typing import Protocol

from ottla.common.kafka.topic_partition import TopicPartition
from ottla.storage.files.log_config import LogConfig
from ottla.storage.segment.data import SegmentRegion


class AppendResult:
    """Result of an append. Times in ms since the epoch, -1 if the topic stores the producer's timestamps."""

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
    """Start of a read and the bytes found within its limit; `records` is None and `length` 0 without any.

    `records` are shorter than `length` if a large batch that exceeds the limit is omitted.
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
    """Events of a log for its manager, which identifies it by topic and partition."""

    def log_configured(self, partition: TopicPartition, config: LogConfig) -> None:
        """The log has new settings; the first event, during its creation."""
        ...

    def flush_needed(self, partition: TopicPartition) -> None:
        """A segment is complete and volatile, or a full disk left a flush incomplete."""
        ...

    def log_truncated(self, partition: TopicPartition, offset: int) -> None:
        """The recovery point was lowered, and a truncation at `offset` follows: higher checkpoints must be rewritten
        first.

        Raises OSError.
        """
        ...

    def records_lost(self, partition: TopicPartition, *, proved: bool) -> None:
        """Records that had been written to the log are missing; called before it is truncated there.

        `proved`: whole batches follow the place, so that it is not the remainder of an unsynced write after a power
        failure. Raises OSError.
        """
        ...

    def log_failed(self, partition: TopicPartition, error: OSError, action: str, *, lasting: bool) -> None:
        """The disk failed under the log. After a transient error (disk full) it continues, unless the failure is
        lasting: then it accepts no more appends.
        """
        ...

    def unlink_later(self, paths: list[str], delay_ms: int) -> None:
        """Remove renamed files after a delay, in which concurrent readers close them."""
        ...
