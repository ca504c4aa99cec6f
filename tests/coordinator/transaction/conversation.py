"""Conversations with the transaction coordinator on virtual time: real runtime and record batches, log in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.end_of_tick import EndOfTickScheduler
from ottla.coordinator.runtime import CoordinatorResult, CoordinatorRuntime, CoordinatorTimer
from ottla.coordinator.transaction.config import TransactionCoordinatorConfig
from ottla.coordinator.transaction.context import ShardContext
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.markers import TxnMarker
from ottla.coordinator.transaction.memory import TransactionMemory, total
from ottla.coordinator.transaction.metadata import TransactionMetadata
from ottla.coordinator.transaction.records import TransactionRecord, TransactionRecordSerde, decode_record
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.record.batch import iter_batches
from ottla.timeline import SnapshotRegistry

from ..answers import Answer
from ..runtime.harness import MemoryLog, VirtualTime

ID = "payments"
TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 4000
LAST_EPOCH = 32_766


class Markers:
    """Stores markers until the test reports their outcome; `prompt` True: each is written at once."""

    def __init__(self) -> None:
        self.prompt = True
        self.out: list[tuple[int, TxnMarker, Callable[[ErrorCode], None]]] = []
        self.sent: list[TxnMarker] = []
        self.cancelled: list[int] = []

    def send(self, coordinator_partition: int, marker: TxnMarker, done: Callable[[ErrorCode], None]) -> None:
        assert marker.partitions
        self.sent.append(marker)
        if self.prompt:
            done(ErrorCode.NONE)
        else:
            self.out.append((coordinator_partition, marker, done))

    def cancel(self, coordinator_partition: int) -> None:
        self.cancelled.append(coordinator_partition)
        self.out = [each for each in self.out if each[0] != coordinator_partition]

    def written(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """Report all pending markers as written."""
        out, self.out = self.out, []
        for _, _, done in out:
            done(code)


class ProducerIdBlock:
    """Rising ids; `hold` True: they arrive when the test says; `error`: none arrives."""

    def __init__(self) -> None:
        self.next = FIRST_PRODUCER_ID
        self.hold = False
        self.error: BaseException | None = None
        self.waiting: list[Callable[[int | None, BaseException | None], None]] = []

    def next_id(self, receiver: Callable[[int | None, BaseException | None], None]) -> None:
        if self.hold:
            self.waiting.append(receiver)
        elif self.error is not None:
            receiver(None, self.error)
        else:
            self.next += 1
            receiver(self.next - 1, None)

    def come(self) -> None:
        """Provide ids for all waiting requests."""
        self.hold = False
        waiting, self.waiting = self.waiting, []
        for receiver in waiting:
            self.next_id(receiver)


def image_of(**topics: int) -> MetadataImage:
    """Topics with so many partitions."""
    partition = PartitionImage((1,), (1,), 1, 0, 0)
    made = {
        name: TopicImage(name, name.encode().rjust(16, b"\x01"), dict.fromkeys(range(count), partition))
        for name, count in topics.items()
    }
    return MetadataImage(topics=made, topics_by_id={topic.topic_id: topic for topic in made.values()})


class Conversation:
    """A coordinator that leads the only partition of its topic; methods send requests and return the `Answer`."""

    def __init__(self, transaction_version: int = 2, **config: Any) -> None:
        self.time = VirtualTime()
        self.log = MemoryLog(self.time, 1)
        self.config = TransactionCoordinatorConfig(**config)
        self.transaction_version = transaction_version
        self.image = image_of(t=8, u=8, __consumer_offsets=50)
        self.markers = Markers()
        self.producer_ids = ProducerIdBlock()
        self.defects: list[tuple[str, Exception]] = []
        self.leader_epoch = 0
        self.start()

    def start(self) -> None:
        """Start as after a process restart: only the log is left."""
        context = ShardContext(
            config=lambda: self.config,
            transaction_version=lambda: self.transaction_version,
            clock=self.time,
            producer_ids=self.producer_ids,
            markers=self.markers,
            memory=TransactionMemory(
                lambda: self.config.max_bytes,
                self.time,
                lambda: total(shard.held for _, shard in self.runtime.active_shards()),
            ),
            writes=lambda: self.runtime,
        )

        def new_shard(partition: int, registry: SnapshotRegistry, timer: CoordinatorTimer) -> TransactionShard:
            return TransactionShard(context, partition, registry, timer)

        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            name="__transaction_state",
            log=self.log,
            serde=lambda: TransactionRecordSerde(lambda: self.transaction_version),
            shard_factory=new_shard,
            clock=self.time,
            scheduler=EndOfTickScheduler(self.time),
            failures=lambda where, error: self.defects.append((where, error)),
        )
        self.runtime.start(1)
        self.log.high_watermark_updated = self.runtime.high_watermark_updated
        self.coordinator = TransactionCoordinator(
            self.runtime,
            context,
            image=lambda: self.image,
            group_partition=len,
            scheduler=self.time,
        )
        self.lead()

    def lead(self) -> None:
        """Become leader in the next epoch and load."""
        self.leader_epoch += 1
        self.log.leader_epoch[0] = self.leader_epoch
        self.runtime.become_leader(0, self.leader_epoch)
        self.time.settle()

    def restart(self) -> None:
        """Crash the process and start it again."""
        self.markers.out.clear()
        now_s, self.time = self.time.now_s, VirtualTime()
        self.time.now_s = now_s
        self.log.time = self.time
        self.start()

    @property
    def shard(self) -> TransactionShard:
        return dict(self.runtime.active_shards())[0]

    def metadata(self, transactional_id: str = ID) -> TransactionMetadata:
        return self.shard.transactions[transactional_id]

    def state(self, transactional_id: str = ID) -> str:
        return self.metadata(transactional_id).state.label

    def records(self) -> list[TransactionRecord]:
        """Everything in the log."""
        found = []
        for raw in self.log.batches[0]:
            for batch in iter_batches(raw):
                for record in batch.records():
                    decoded = decode_record(record.key or b"", record.value)
                    assert decoded is not None
                    found.append(decoded)
        return found

    def states(self) -> list[str]:
        """States in the log, a tombstone as `-`."""
        return [record.metadata.state.label if record.metadata else "-" for record in self.records()]

    def put(self, metadata: TransactionMetadata, transactional_id: str = ID) -> None:
        """Give an id a history through the log."""
        outcomes: list[Any] = []
        record = TransactionRecord(transactional_id, metadata)
        self.runtime.schedule_write(
            "put", 0, lambda _: CoordinatorResult((record,)), lambda *done: outcomes.append(done)
        )
        self.time.settle()
        assert outcomes == [(None, None)]

    def _send(self, send: Callable[..., None], *arguments: object, settle: bool = True) -> Answer[Any]:
        answer: Answer[Any] = Answer()
        send(*arguments, answer)
        if settle:
            self.time.settle()
            assert not self.defects, self.defects
        return answer

    # -- requests -----------------------------------------------------------------------------------------------------

    def init(
        self,
        transactional_id: str | None = ID,
        producer: tuple[int, int] = (-1, -1),
        *,
        timeout_ms: int = TIMEOUT_MS,
        version: int = 5,
        settle: bool = True,
    ) -> Answer[InitProducerIdResponse]:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        return self._send(self.coordinator.init_producer_id, version, request, settle=settle)

    def producer(self, transactional_id: str = ID) -> tuple[int, int]:
        """Initialize a new instance; return its id and epoch."""
        return self.init(transactional_id).producer

    def add(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        transactional_id: str = ID,
        version: int = 3,
        verify_only: bool = False,
        settle: bool = True,
    ) -> Answer[Any]:
        topics = [AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in partitions or [("t", 0)]]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=topics,
            )
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=verify_only,
                topics=topics,
            )
            request = AddPartitionsToTxnRequest(transactions=[transaction])
        return self._send(self.coordinator.add_partitions_to_txn, version, request, settle=settle)

    def added(self, producer: tuple[int, int], *partitions: TopicPartition, **options: Any) -> list[ErrorCode]:
        """Add partitions; return the codes of all partitions in the order of the response."""
        return codes(self.add(producer, *partitions, **options))

    def add_offsets(
        self, producer: tuple[int, int], group_id: str = "group", *, version: int = 3, transactional_id: str = ID
    ) -> Answer[Any]:
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id=group_id,
        )
        return self._send(self.coordinator.add_offsets_to_txn, version, request)

    def end(
        self,
        producer: tuple[int, int],
        *,
        committed: bool = True,
        version: int = 5,
        transactional_id: str = ID,
        settle: bool = True,
    ) -> Answer[EndTxnResponse]:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=committed,
        )
        return self._send(self.coordinator.end_txn, version, request, settle=settle)

    def describe(self, *transactional_ids: str) -> list[DescribedTransaction]:
        request = DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
        described: list[DescribedTransaction] = self._send(
            self.coordinator.describe_transactions, 0, request
        ).response.transaction_states
        return described

    def list(self, version: int = 2, **filters: Any) -> ListTransactionsResponse:
        request = ListTransactionsRequest(**filters)
        response: ListTransactionsResponse = self._send(self.coordinator.list_transactions, version, request).response
        return response


def codes(answer: Answer[Any]) -> list[ErrorCode]:
    """Return the codes of all partitions of an AddPartitionsToTxn, in the order of the response."""
    response = answer.response
    topics = list(response.results_by_topic_v3_and_below)
    for result in response.results_by_transaction:
        topics += result.topic_results
    return [ErrorCode(each.partition_error_code) for topic in topics for each in topic.results_by_partition]
