"""Transactional batches of a Produce: asked of the transaction's coordinator before they are appended (KIP-890).

A partition where the producer's transaction is open needs nothing more. For any other the coordinator is asked first,
since a batch that was delayed past the end of its transaction would open one that nobody ends: up to version 11
whether the client added the partition, from 12 on to add it (transactions v2). The version of the request decides, as
in Apache Kafka, and not the finalized `transaction.version`: clients send 12 only where that is 2. What the
coordinator knew may be out of date when its answer comes; the guard that the partition gave out before, and takes back
with the append, is what tells (`Partition.begin_verification`).

Left out: the appending (`produce`), the way to coordinators (`server.transactions.transaction_partitions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import ErrorCode, KafkaError, without_frames
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.clock import Clock, TimerHandle
from ottla.common.platform.end_of_tick import EndOfTickScheduler
from ottla.protocol.primitives import Topic
from ottla.protocol.produce import ParsedProduceRequest
from ottla.record.batch import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    BATCH_HEADER,
    HEADER_SIZE,
    MAGIC,
    MAGIC_V2,
    NO_PRODUCER_ID,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_MASK,
)
from ottla.replica.manager import ReplicaManager
from ottla.replica.partition import Partition
from ottla.server.transactions.transaction_partitions import (
    REQUEST_TIMEOUT_S,
    PartitionErrors,
    TransactionPartitions,
)
from ottla.storage.log.verification import VerificationGuard
from ottla.storage.segment.results import AppendResult

FIRST_VERSION_WITH_TRANSACTION_ABORTABLE = 11
FIRST_VERSION_THAT_ADDS_PARTITIONS = 12

_COORDINATOR_ERRORS = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What a client would take for its own coordinator's: it hears NOT_ENOUGH_REPLICAS, and tries again."""

Place = tuple[int, int]
"""A partition of a request: its row of topics, and its position there."""


class Findings:
    """What was found out about batches of one request before they are appended, by their places."""

    __slots__ = ("batches", "guards", "refusals")

    def __init__(self) -> None:
        self.batches: dict[Place, bytearray] = {}
        """What stands for the client's batch: decompressed, or compressed again."""
        self.refusals: dict[Place, KafkaError] = {}
        self.guards: dict[Place, VerificationGuard] = {}

    def append(
        self, partition: Partition, place: Place, buffer: bytearray, start: int, stop: int, *, acks_all: bool
    ) -> AppendResult:
        """Append one batch by what was found out. Raises KafkaError, also the one that was found."""
        refusal = self.refusals.pop(place, None)
        if refusal is not None:
            try:
                raise refusal
            finally:
                del refusal  # else its traceback and this frame would hold each other, and the buffers
        guard = self.guards.get(place)
        batch = self.batches.get(place)
        if batch is None:
            return partition.append_records(buffer, start, stop, acks_all, guard=guard)
        return partition.append_records(batch, 0, len(batch), acks_all, True, guard=guard)


class NotInTransaction(KafkaError):
    """The coordinator did not let a partition into the transaction."""


class TransactionalBatch:
    """A transactional batch of a request: where it stands, and whose it is by its header."""

    __slots__ = ("base_sequence", "index", "place", "producer", "topic")

    def __init__(self, place: Place, topic: Topic, index: int, producer: tuple[int, int], base_sequence: int) -> None:
        self.place = place
        self.topic = topic
        self.index = index
        self.producer = producer
        """Id and epoch."""
        self.base_sequence = base_sequence


def transactional_batches(buffer: bytearray, produce: ParsedProduceRequest) -> list[TransactionalBatch]:
    """The batches that say they belong to a transaction. Nothing else about them was checked yet."""
    batches = []
    for row, (topic, partitions) in enumerate(produce.topics):
        for position, (index, start, stop) in enumerate(partitions):
            if stop - start < HEADER_SIZE:
                continue
            header = BATCH_HEADER.unpack_from(buffer, start)
            if header[MAGIC] == MAGIC_V2 and header[ATTRIBUTES] & TRANSACTIONAL_MASK:
                producer = header[PRODUCER_ID], header[PRODUCER_EPOCH]
                batches.append(TransactionalBatch((row, position), topic, index, producer, header[BASE_SEQUENCE]))
    return batches


def of_one_producer(batches: Iterable[TransactionalBatch]) -> list[TransactionalBatch]:
    """The batches that have a producer; the rest is storage's to refuse.

    Raises KafkaError INVALID_PRODUCER_ID_MAPPING when there are several producers or epochs of one.
    """
    produced = [batch for batch in batches if batch.producer[0] != NO_PRODUCER_ID]
    if len({batch.producer for batch in produced}) > 1:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
        )
    return produced


class TransactionGate:
    """What a broker needs to ask before it lets transactional batches in, with its settings."""

    __slots__ = ("clock", "partitions", "replicas", "retry_backoff_s", "retry_max_s", "scheduler", "verifies")

    def __init__(
        self,
        partitions: TransactionPartitions,
        replicas: ReplicaManager,
        *,
        clock: Clock,
        scheduler: EndOfTickScheduler,
    ) -> None:
        self.partitions = partitions
        self.replicas = replicas
        self.clock = clock
        self.scheduler = scheduler
        self.verifies = True
        self.retry_backoff_s = 0.0
        self.retry_max_s = 0.0

    def use_config(self, config: BrokerConfig) -> None:
        """Go on with these settings."""
        self.verifies = config.get_bool("transaction.partition.verification.enable")
        self.retry_backoff_s = config.get_int("add.partitions.to.txn.retry.backoff.ms") / 1000
        self.retry_max_s = min(config.get_int("add.partitions.to.txn.retry.backoff.max.ms") / 1000, REQUEST_TIMEOUT_S)

    def asks(self, transactional_id: str, api_version: int) -> bool:
        """Whether the coordinator is asked at all; where it isn't, the partition's own rules decide."""
        return transactional_id != "" and (self.verifies or api_version >= FIRST_VERSION_THAT_ADDS_PARTITIONS)


class TransactionCheck:
    """The question of one request about batches of one producer.

    One that is to add partitions is asked again for a while, where the coordinator still ends the transaction before
    (CONCURRENT_TRANSACTIONS): when that has ended, if the coordinator is in this process, else by the clock.

    `then` gets the findings, once, possibly within `begin`.
    """

    __slots__ = (
        "_api_version",
        "_asked",
        "_batches",
        "_deadline_s",
        "_findings",
        "_gate",
        "_then",
        "_timer",
        "_transactional_id",
    )

    def __init__(
        self,
        gate: TransactionGate,
        transactional_id: str,
        batches: list[TransactionalBatch],
        *,
        api_version: int,
        then: Callable[[Findings], None],
    ) -> None:
        self._gate = gate
        self._transactional_id = transactional_id
        self._batches = batches
        self._api_version = api_version
        self._then = then
        self._findings = Findings()
        self._asked: dict[TopicPartition, list[Place]] = {}
        self._deadline_s = gate.clock.monotonic() + gate.retry_max_s
        self._timer: TimerHandle | None = None

    def begin(self) -> None:
        """Ask for all partitions that need it. Every try gets new guards: markers may have come in between."""
        self._findings = Findings()
        self._asked = {}
        producer_id, producer_epoch = self._batches[0].producer
        adds = self._api_version >= FIRST_VERSION_THAT_ADDS_PARTITIONS
        for batch in self._batches:
            try:
                partition = self._gate.replicas.find(batch.topic, batch.index)
                guard = partition.begin_verification(
                    producer_id, producer_epoch, batch.base_sequence, supports_epoch_bump=adds
                )
            except KafkaError as error:
                self._findings.refusals[batch.place] = without_frames(error)
                continue
            if guard is not None:
                self._findings.guards[batch.place] = guard
                self._asked.setdefault((partition.topic, batch.index), []).append(batch.place)
        if not self._asked:
            self._then(self._findings)
            return
        self._gate.partitions.add_or_verify(
            self._transactional_id,
            producer_id,
            producer_epoch,
            tuple(self._asked),
            verify_only=not adds,
            done=self._answered,
        )

    def _answered(self, errors: PartitionErrors) -> None:
        gate = self._gate
        if (
            self._api_version >= FIRST_VERSION_THAT_ADDS_PARTITIONS
            and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            and (left_s := self._deadline_s - gate.clock.monotonic()) > 0
        ):
            self._wait(left_s)
            return
        for partition, error in errors.items():
            if error is not ErrorCode.NONE:
                for place in self._asked[partition]:
                    self._findings.refusals[place] = told_to_producer(error, self._api_version)
        self._then(self._findings)

    def _wait(self, left_s: float) -> None:
        scheduler = self._gate.scheduler
        self._timer = scheduler.call_later(left_s, self._waited_long)
        if not self._gate.partitions.after_ending(self._transactional_id, self._ended):
            self._timer.cancel()
            scheduler.call_later(self._gate.retry_backoff_s, self.begin)

    def _ended(self) -> None:
        """Not within the call, since this is heard in the midst of the coordinator's work."""
        if self._timer is not None:
            self._timer.cancel()
        self._gate.scheduler.at_end_of_turn(self.begin)

    def _waited_long(self) -> None:
        self._gate.partitions.stop_waiting(self._transactional_id, self._ended)
        self.begin()


def told_to_producer(error: ErrorCode, api_version: int) -> NotInTransaction:
    """The coordinator's error as a producer of that version of Produce knows it."""
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < FIRST_VERSION_WITH_TRANSACTION_ABORTABLE:
        error = ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.INVALID_TXN_STATE:
        return NotInTransaction(error, "Partition was not added to the transaction")
    if error in _COORDINATOR_ERRORS or (
        error is ErrorCode.CONCURRENT_TRANSACTIONS and api_version < FIRST_VERSION_THAT_ADDS_PARTITIONS
    ):
        return NotInTransaction(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}",
        )
    return NotInTransaction(error)
