"""A cluster in memory with the interface of `Cluster`, to test planning and landing without a broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ottla.client.wire.failure import TopicNotFound, TopicReplaced
from ottla.client.wire.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_OFFSET,
    AbortedTransaction,
    ClusterInfo,
    FetchResult,
    OffsetInfo,
    PartitionInfo,
    TopicInfo,
)
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.record.batch import BatchView
from ottla.record.builder import RecordData, build_batch


@dataclass
class MemoryPartition:
    """Batches in offset order; `end` is the last stable offset as well."""

    batches: list[bytes] = field(default_factory=list)
    log_start: int = 0
    end: int = 0
    aborted: tuple[AbortedTransaction, ...] = ()
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """Leader epochs with their first offsets, as a leader epoch checkpoint holds them."""
    newest_epoch: int = 0

    def append(self, data: bytes | bytearray) -> None:
        self.batches.append(bytes(data))
        self.end = BatchView(data).next_offset

    def append_values(self, values: list[bytes], compression: str = "none") -> None:
        """One batch at the end of the log."""
        records = [RecordData(1_700_000_000_000 + self.end + number, b"key", v) for number, v in enumerate(values)]
        self.append(build_batch(records, base_offset=self.end, compression=compression))

    def append_times(self, *timestamps: int) -> None:
        """One batch of records at these times."""
        self.append(build_batch([RecordData(time, b"key", b"timed") for time in timestamps], base_offset=self.end))

    def elect_leader(self, end: int | None = None) -> None:
        """Elect a new leader; after an unclean election its log ends at `end`, below offsets read from the old one."""
        if end is not None:
            self.batches = [batch for batch in self.batches if BatchView(batch).next_offset <= end]
            self.epochs = [(epoch, start) for epoch, start in self.epochs if start < end] or [(0, 0)]
            self.end = end
        self.newest_epoch += 1
        self.epochs.append((self.newest_epoch, self.end))

    def offset_at(self, timestamp: int) -> int:
        """Offset of the first record at or after a time, NO_OFFSET without one. For batches of one time only."""
        views = map(BatchView, self.batches)
        return next((view.base_offset for view in views if view.max_timestamp >= timestamp), NO_OFFSET)

    def epoch_end(self, epoch: int) -> int:
        """The response of OffsetForLeaderEpoch (KIP-279)."""
        newest, _ = self.epochs[-1]
        if epoch > newest:
            return NO_OFFSET
        return next((start for later, start in self.epochs if later > epoch), self.end)


class MemoryCluster:
    """Topics by name, each with an id that distinguishes it from an earlier one of the same name.

    It is its own `topics` and `records`.
    """

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, int], MemoryPartition] = {}
        self.cluster_id = "memory"
        self.topic_ids: dict[str, bytes] = {}
        self.fetches = 0

    def create(self, name: str, partitions: int) -> None:
        """Create the topic, replacing an older one."""
        self.topic_ids[name] = bytes([len(self.topic_ids) + self.fetches + 1] * 16)
        for index in range(partitions):
            self.partitions[name, index] = MemoryPartition()

    @contextmanager
    def open(self, *, recently_reachable: bool = False) -> Iterator[MemoryCluster]:
        """Takes the arguments of `Cluster`; this cluster is always reachable."""
        yield self

    def describe(self) -> ClusterInfo:
        return ClusterInfo(self.cluster_id, 1, ())

    @property
    def topics(self) -> MemoryCluster:
        return self

    @property
    def records(self) -> MemoryCluster:
        return self

    def get(self, name: str) -> TopicInfo:
        if name not in self.topic_ids:
            raise TopicNotFound(name)
        indexes = sorted(index for topic, index in self.partitions if topic == name)
        infos = tuple(PartitionInfo(index, 1, 0, (1,), (1,), ()) for index in indexes)
        return TopicInfo(name, self.topic_ids[name], False, infos)

    def all(self) -> dict[str, TopicInfo]:
        return {name: self.get(name) for name in sorted(self.topic_ids)}

    def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], *, isolation: str = "read_uncommitted"
    ) -> dict[tuple[str, int], OffsetInfo]:
        found = {}
        for key, timestamp in timestamps.items():
            partition = self.partitions[key]
            named = {EARLIEST_TIMESTAMP: partition.log_start, LATEST_TIMESTAMP: partition.end}
            offset = named[timestamp] if timestamp in named else partition.offset_at(timestamp)
            found[key] = OffsetInfo(offset, -1, partition.newest_epoch)
        return found

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {key: self.partitions[key].epoch_end(epoch) for key, epoch in epochs.items()}

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        max_wait_ms: int,
        isolation: str,
        topic_id: Uuid | None,
    ) -> FetchResult:
        self.fetches += 1
        if topic_id is not None and topic_id != self.topic_ids[topic]:
            raise TopicReplaced(topic, topic_id, self.topic_ids[topic])
        log = self.partitions[topic, partition]
        if not log.log_start <= offset <= log.end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        data = b"".join(batch for batch in log.batches if BatchView(batch).last_offset >= offset)
        first = BatchView(data).size_bytes if data else 0
        return FetchResult(data[: max(max_bytes, first)], log.end, log.log_start, log.end, log.aborted)
