"""A cluster in memory that answers as `ottla.client.Cluster` does, to test planning and landing without a broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ottla.client.failure import TopicNotFound
from ottla.client.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    AbortedTransaction,
    FetchResult,
    OffsetInfo,
    PartitionInfo,
    TopicInfo,
)
from ottla.common.errors import ErrorCode, KafkaError
from ottla.record.batch import BatchView
from ottla.record.builder import RecordData, build_batch


@dataclass
class MemoryPartition:
    """Batches in offset order; `end` is the last stable offset as well."""

    batches: list[bytes] = field(default_factory=list)
    log_start: int = 0
    end: int = 0
    aborted: tuple[AbortedTransaction, ...] = ()

    def append(self, data: bytes | bytearray) -> None:
        self.batches.append(bytes(data))
        self.end = BatchView(data).next_offset

    def append_values(self, values: list[bytes], compression: str = "none") -> None:
        """One batch at the end of the log."""
        records = [RecordData(1_700_000_000_000 + self.end + number, b"key", v) for number, v in enumerate(values)]
        self.append(build_batch(records, base_offset=self.end, compression=compression))


class MemoryCluster:
    """Topics by name, each with an id that tells it from an earlier one of the same name."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, int], MemoryPartition] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.fetches = 0

    def create(self, name: str, partitions: int) -> None:
        """Make the topic, also in place of an older one."""
        self.topic_ids[name] = bytes([len(self.topic_ids) + self.fetches + 1] * 16)
        for index in range(partitions):
            self.partitions[name, index] = MemoryPartition()

    @contextmanager
    def open(self) -> Iterator[MemoryCluster]:
        yield self

    def topic(self, name: str) -> TopicInfo:
        if name not in self.topic_ids:
            raise TopicNotFound(name)
        indexes = sorted(index for topic, index in self.partitions if topic == name)
        infos = tuple(PartitionInfo(index, 1, 0, (1,), (1,), ()) for index in indexes)
        return TopicInfo(name, self.topic_ids[name], False, infos)

    def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], *, isolation: str = "read_uncommitted"
    ) -> dict[tuple[str, int], OffsetInfo]:
        found = {}
        for key, timestamp in timestamps.items():
            partition = self.partitions[key]
            offset = {EARLIEST_TIMESTAMP: partition.log_start, LATEST_TIMESTAMP: partition.end}[timestamp]
            found[key] = OffsetInfo(offset, -1, 0)
        return found

    def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, max_wait_ms: int, isolation: str
    ) -> FetchResult:
        self.fetches += 1
        log = self.partitions[topic, partition]
        if not log.log_start <= offset <= log.end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        data = b"".join(batch for batch in log.batches if BatchView(batch).last_offset >= offset)
        first = BatchView(data).size_bytes if data else 0
        return FetchResult(data[: max(max_bytes, first)], log.end, log.log_start, log.end, log.aborted)
