"""Unanswered writes of one shard: the open batch, and appended batches above the high watermark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.common.errors import KafkaError
from ottla.common.platform.clock import TimerHandle
from ottla.coordinator.runtime.records import Appended
from ottla.record.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.record.builder import RecordData

Done = Callable[[Any, KafkaError | None], None]

RECORD_OVERHEAD_BYTES = 32
"""Upper bound for the overhead of a record without headers besides key and value: attributes and six varints."""


class Producer(NamedTuple):
    """The producer of a batch's records: one with a transaction, or NO_PRODUCER."""

    producer_id: int
    producer_epoch: int
    guard: Any
    """Passed to the log for a partition that was verified to be in the transaction."""


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, None)


class PendingOperation:
    """A write operation that has run and waits until its records, or those it has read, are committed."""

    __slots__ = ("appended", "done", "name", "response")

    def __init__(self, name: str, response: Any, appended: Appended | None, done: Done) -> None:
        self.name = name
        self.response = response
        self.appended = appended
        self.done = done


class OpenBatch:
    """Records of this tick's operations, or of one operation in a transaction; already replayed."""

    __slots__ = ("base_offset", "limit_bytes", "operations", "producer", "records", "size_bytes", "timestamp_ms")

    def __init__(self, base_offset: int, timestamp_ms: int, producer: Producer, limit_bytes: int = 0) -> None:
        """A batch that reaches `limit_bytes`, the log's limit, is appended before the end of the tick."""
        self.base_offset = base_offset
        self.limit_bytes = limit_bytes
        self.producer = producer
        self.timestamp_ms = timestamp_ms
        self.records: list[RecordData] = []
        self.size_bytes = 0
        self.operations: list[PendingOperation] = []

    @property
    def next_offset(self) -> int:
        """Offset of the next record, or the end of the batch."""
        return self.base_offset + len(self.records)


class ParkedBatch:
    """Operations that wait for the high watermark to reach `end_offset`."""

    __slots__ = ("end_offset", "operations", "timer")

    def __init__(self, end_offset: int, operations: list[PendingOperation]) -> None:
        self.end_offset = end_offset
        self.operations = operations
        self.timer: TimerHandle | None = None


def record_size_bytes(record: RecordData) -> int:
    """Upper bound of the uncompressed size of `record` in a batch."""
    return RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
