"""Verifies transactional batches of a Produce with the transaction's coordinator before the append (KIP-890).

A partition with an open transaction of the producer needs no check. For any other the coordinator is asked first:
otherwise a batch delayed past the end of its transaction would open one that never ends. Up to version 11 the
coordinator checks whether the client added the partition; from 12 on it adds the partition (transactions v2). As in
Apache Kafka the request's version decides, not the finalized `transaction.version`: clients send 12 only where that
is 2. The coordinator's response may be outdated when it arrives. The partition therefore issues a guard before the
request and checks it on the append (`Partition.begin_verification`).

Not here: the append (`produce`), and requests to coordinators (`server.transactions.transaction_partitions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import ErrorCode, KafkaError, without_frames
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.clock import Clock, TimerHandle
from ottla.common.platform.end_of_tick import EndOfTickScheduler
from ottla.protocol.primitives import Topic
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

if TYPE_CHECKING:
    from ottla.protocol.produce import ParsedProduceRequest

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
"""Errors that a client would attribute to its own coordinator: it gets NOT_ENOUGH_REPLICAS, and retries."""

Place = tuple[int, int]
"""Position of a partition in a request: its topic row and index there."""


class Findings:
    """Results of the checks of a request's batches before the append, by position."""

    __slots__ = ("batches", "guards", "refusals")

    def __init__(self) -> None:
        self.batches: dict[Place, bytearray] = {}
        """Replacement of the client's batch: decompressed, or recompressed."""
        self.refusals: dict[Place, KafkaError] = {}
        self.guards: dict[Place, VerificationGuard] = {}

    def append(
        self, partition: Partition, place: Place, buffer: bytearray, start: int, stop: int, *, acks_all: bool
    ) -> AppendResult:
        """Append one batch according to its findings. Raises KafkaError, including the one found."""
        refusal = self.refusals.pop(place, None)
        if refusal is not None:
            try:
                raise refusal
            finally:
                del refusal  # otherwise its traceback and this frame would keep each other, and the buffers, alive
        guard = self.guards.get(place)
        batch = self.batches.get(place)
        if batch is None:
            return partition.append_records(buffer, start, stop, acks_all, guard=guard)
        return partition.append_records(batch, 0, len(batch), acks_all, True, guard=guard)


class NotInTransaction(KafkaError):
    """The coordinator did not add a partition to the transaction."""


class TransactionalBatch:
    """A transactional batch of a request: its position, and its producer by its header."""

    __slots__ = ("base_sequence", "index", "place", "producer", "topic")

    def __init__(self, place: Place, topic: Topic, index: int, producer: tuple[int, int], base_sequence: int) -> None:
        self.place = place
        self.topic = topic
        self.index = index
        self.producer = producer
        """Producer id and epoch."""
        self.base_sequence = base_sequence


def transactional_batches(buffer: bytearray, produce: ParsedProduceRequest) -> list[TransactionalBatch]:
    """The batches whose header is transactional. Nothing else about them was checked yet."""
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
    """The batches that have a producer; storage refuses the rest.

    Raises KafkaError INVALID_PRODUCER_ID_MAPPING for several producers, or epochs of one.
    """
    produced = [batch for batch in batches if batch.producer[0] != NO_PRODUCER_ID]
    if len({batch.producer for batch in produced}) > 1:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
        )
    return produced


class TransactionGate:
    """Dependencies and settings of the verification of transactional batches."""

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
        """Apply changed broker settings."""
        self.verifies = config.get_bool("transaction.partition.verification.enable")
        self.retry_backoff_s = config.get_int("add.partitions.to.txn.retry.backoff.ms") / 1000
        self.retry_max_s = min(config.get_int("add.partitions.to.txn.retry.backoff.max.ms") / 1000, REQUEST_TIMEOUT_S)

    def asks(self, transactional_id: str, api_version: int) -> bool:
        """Whether the coordinator is asked at all; if not, the partition's own rules decide."""
        return transactional_id != "" and (self.verifies or api_version >= FIRST_VERSION_THAT_ADDS_PARTITIONS)


class TransactionCheck:
    """Verification request for batches of one producer.

    A request that adds partitions is retried for a while if the coordinator still ends the previous transaction
    (CONCURRENT_TRANSACTIONS): when that has ended, if the coordinator is in this process, else after a delay.

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
        """Request verification of the partitions that need it. Every try gets new guards: markers may intervene."""
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
                    self._findings.refusals[place] = producer_error(error, self._api_version)
        self._then(self._findings)

    def _wait(self, left_s: float) -> None:
        scheduler = self._gate.scheduler
        self._timer = scheduler.call_later(left_s, self._waited_long)
        if not self._gate.partitions.after_ending(self._transactional_id, self._ended):
            self._timer.cancel()
            scheduler.call_later(self._gate.retry_backoff_s, self.begin)

    def _ended(self) -> None:
        """Deferred, since this is called during the coordinator's work."""
        if self._timer is not None:
            self._timer.cancel()
        self._gate.scheduler.at_end_of_turn(self.begin)

    def _waited_long(self) -> None:
        self._gate.partitions.stop_waiting(self._transactional_id, self._ended)
        self.begin()


def producer_error(error: ErrorCode, api_version: int) -> NotInTransaction:
    """Translate the coordinator's error for a producer of that Produce version."""
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
