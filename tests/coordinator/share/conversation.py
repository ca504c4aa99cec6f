"""Conversations with the share coordinator on virtual time: real runtime and record batches, log in memory."""

from __future__ import annotations

from typing import Any

from ottla.common.errors import ErrorCode
from ottla.common.kafka.share_state import SharePartitionKey, StateBatch
from ottla.common.platform.end_of_tick import EndOfTickScheduler
from ottla.coordinator.runtime import CoordinatorRuntime, CoordinatorTimer
from ottla.coordinator.share.config import ShareCoordinatorConfig
from ottla.coordinator.share.context import ShardContext
from ottla.coordinator.share.coordinator import ShareCoordinator
from ottla.coordinator.share.memory import ShareMemory
from ottla.coordinator.share.records import ShareRecordSerde, decode_record
from ottla.coordinator.share.shard import ShareCoordinatorShard
from ottla.coordinator.share.state import ShareRecord, StoredState
from ottla.coordinator.share.statistics import ShareCoordinatorStatistics
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ottla.record.batch import BatchView, iter_batches
from ottla.timeline import SnapshotRegistry

from ..answers import Answer
from ..runtime.harness import MemoryLog, VirtualTime

GROUP = "billing:eu"
"""A group id may contain colons."""


def topic_id(name: str) -> bytes:
    return name.encode().rjust(16, b"\x01")


def image_of(**topics: int) -> MetadataImage:
    """Topics with so many partitions."""
    partition = PartitionImage((1,), (1,), 1, 0, 0)
    made = {
        name: TopicImage(name, topic_id(name), dict.fromkeys(range(count), partition)) for name, count in topics.items()
    }
    return MetadataImage(topics=made, topics_by_id={topic.topic_id: topic for topic in made.values()})


def key_of(partition: int = 0, topic: str = "t", group: str = GROUP) -> SharePartitionKey:
    return SharePartitionKey(group, topic_id(topic), partition)


class Conversation:
    """A coordinator that leads all partitions of its topic; methods send requests and return the `Answer`."""

    def __init__(self, partitions: int = 1, **config: Any) -> None:
        self.time = VirtualTime()
        self.partitions = partitions
        self.log = MemoryLog(self.time, partitions)
        self.config = ShareCoordinatorConfig(**config)
        self.image = image_of(t=8, u=200)
        self.prunes = True
        self.defects: list[tuple[str, Exception]] = []
        self.leader_epoch = 0
        self.start()

    def start(self) -> None:
        """Start as after a process restart: only the log is left."""
        self.statistics = ShareCoordinatorStatistics()
        context = ShardContext(
            config=self.config,
            image=lambda: self.image,
            clock=self.time,
            memory=ShareMemory(lambda: self.config.max_bytes, self.time, self._held_bytes),
            prune=self._prune,
            statistics=self.statistics,
        )

        def new_shard(partition: int, registry: SnapshotRegistry, timer: CoordinatorTimer) -> ShareCoordinatorShard:
            return ShareCoordinatorShard(context, partition, registry, timer)

        self.runtime: CoordinatorRuntime[ShareCoordinatorShard] = CoordinatorRuntime(
            name="__share_group_state",
            log=self.log,
            serde=ShareRecordSerde,
            shard_factory=new_shard,
            clock=self.time,
            scheduler=EndOfTickScheduler(self.time),
            failures=lambda where, error: self.defects.append((where, error)),
        )
        self.runtime.start(self.partitions)
        self.log.high_watermark_updated = self.runtime.high_watermark_updated
        self.coordinator = ShareCoordinator(self.runtime, self.statistics, clock=self.time, scheduler=self.time)
        self.lead()

    def lead(self) -> None:
        """Become leader in the next epoch and load."""
        self.leader_epoch += 1
        for partition in range(self.partitions):
            self.log.leader_epoch[partition] = self.leader_epoch
            self.runtime.become_leader(partition, self.leader_epoch)
        self.time.settle()

    def restart(self) -> None:
        """Crash the process and start it again."""
        now_s, self.time = self.time.now_s, VirtualTime()
        self.time.now_s = now_s
        self.log.time = self.time
        self.start()

    def _held_bytes(self) -> int:
        return sum(shard.held_bytes for _, shard in self.runtime.active_shards())

    def _prune(self, partition: int, offset: int) -> bool:
        """Delete whole batches, as segments are deleted; the log start offset is exact."""
        if not self.prunes:
            return False
        assert offset <= self.log.high_watermark[partition]
        kept = [batch for batch in self.log.batches[partition] if BatchView(batch).next_offset > offset]
        self.log.batches[partition] = kept
        self.log.start[partition] = max(offset, self.log.start[partition])
        return True

    def shard(self, partition: int = 0) -> ShareCoordinatorShard:
        return dict(self.runtime.active_shards())[partition]

    def states(self) -> dict[SharePartitionKey, StoredState]:
        """Everything that the shards hold."""
        return {key: state for _, shard in self.runtime.active_shards() for key, state in shard.states.items()}

    def records(self, partition: int = 0) -> list[ShareRecord]:
        """Everything in the log from its start offset on."""
        found = []
        for raw in self.log.batches[partition]:
            for batch in iter_batches(raw):
                for record in batch.records():
                    decoded = decode_record(record.key or b"", record.value)
                    assert decoded is not None
                    if record.offset >= self.log.start[partition]:
                        found.append(decoded)
        return found

    def send(self, message: Any, *, settle: bool = True) -> Answer[Any]:
        answer: Answer[Any] = Answer()
        self.coordinator.answer(message, answer)
        if settle:
            self.time.settle()
            assert not self.defects, self.defects
        return answer

    def _one(self, message: Any) -> Any:
        """The only entry of the response."""
        ((entry,),) = [result.partitions for result in self.send(message).response.results]
        return entry

    # -- requests -----------------------------------------------------------------------------------------------------

    def initialize(self, key: SharePartitionKey, state_epoch: int = 1, start_offset: int = 0) -> ErrorCode:
        data = initialize_share_group_state.PartitionData(
            partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
        )
        topic = initialize_share_group_state.InitializeStateData(topic_id=key.topic_id, partitions=[data])
        request = initialize_share_group_state.InitializeShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        return ErrorCode(self._one(request).error_code)

    def read(self, key: SharePartitionKey, leader_epoch: int = 0) -> read_share_group_state.PartitionResult:
        data = read_share_group_state.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = read_share_group_state.ReadStateData(topic_id=key.topic_id, partitions=[data])
        entry = self._one(read_share_group_state.ReadShareGroupStateRequest(group_id=key.group_id, topics=[topic]))
        assert isinstance(entry, read_share_group_state.PartitionResult)
        return entry

    def write(
        self,
        key: SharePartitionKey,
        *batches: tuple[int, int, int, int],
        state_epoch: int = 1,
        leader_epoch: int = 0,
        start_offset: int = -1,
        complete_count: int = -1,
    ) -> ErrorCode:
        """`batches` are (first offset, last offset, state, delivery count)."""
        data = write_share_group_state.PartitionData(
            partition=key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete_count,
            state_batches=[
                write_share_group_state.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
                )
                for first, last, state, count in batches
            ],
        )
        topic = write_share_group_state.WriteStateData(topic_id=key.topic_id, partitions=[data])
        request = write_share_group_state.WriteShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        return ErrorCode(self._one(request).error_code)

    def delete(self, key: SharePartitionKey) -> ErrorCode:
        data = delete_share_group_state.PartitionData(partition=key.partition)
        topic = delete_share_group_state.DeleteStateData(topic_id=key.topic_id, partitions=[data])
        request = delete_share_group_state.DeleteShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        return ErrorCode(self._one(request).error_code)

    def summarize(
        self, key: SharePartitionKey, leader_epoch: int = -1
    ) -> read_share_group_state_summary.PartitionResult:
        data = read_share_group_state_summary.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = read_share_group_state_summary.ReadStateSummaryData(topic_id=key.topic_id, partitions=[data])
        entry = self._one(
            read_share_group_state_summary.ReadShareGroupStateSummaryRequest(group_id=key.group_id, topics=[topic])
        )
        assert isinstance(entry, read_share_group_state_summary.PartitionResult)
        return entry


def batches_of(state: StoredState) -> list[tuple[int, int, int, int]]:
    """(first offset, last offset, state, delivery count) of each batch."""
    return [as_tuple(batch) for batch in state.batches]


def as_tuple(batch: StateBatch) -> tuple[int, int, int, int]:
    return batch.first_offset, batch.last_offset, batch.state, batch.delivery_count
