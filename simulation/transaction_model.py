"""A small model of transactions v2 (KIP-890, KIP-1228) that runs the real code of coordinator and partitions.

Two producers share a transactional id, so that the second is the first one's successor and the first its zombie. They
write to two partitions, each of which has a `ProducerState`; the coordinator decides by `coordinator.transaction`. The
network is unordered: a request may be delivered at any time or never, and up to a limit (`Bounds.faults`) its response
is lost or it is duplicated. The coordinator may move to another broker, which sends the markers again in its own epoch
while those of its predecessor are still in flight, and it may time a transaction out. `transaction_explorer` explores
all orders of these steps.

The invariants are in `transaction_invariants`.

Not included: the coordinator's log, where a write is one step: responses and markers follow only committed writes, and
a write lost with its leader equals a request that never arrived; and replicas of the partitions.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.coordinator.runtime import CoordinatorResult
from ottla.coordinator.transaction.config import TransactionCoordinatorConfig
from ottla.coordinator.transaction.context import ShardContext
from ottla.coordinator.transaction.end_txn import abort_open
from ottla.coordinator.transaction.initialization import ProducerIdentity
from ottla.coordinator.transaction.memory import MemoryUsage, TransactionMemory
from ottla.coordinator.transaction.metadata import TransactionMetadata, completed
from ottla.coordinator.transaction.outcome import MissingInput
from ottla.coordinator.transaction.records import (
    TransactionRecord,
    decode_record,
    encode_key,
    encode_value,
)
from ottla.coordinator.transaction.shard import ProducerIdResult, TransactionShard
from ottla.coordinator.transaction.state import PREPARED, TransactionState
from ottla.record.batch import BATCH_HEADER, MAGIC_V2, TRANSACTIONAL_MASK
from ottla.record.control import end_transaction_marker
from ottla.storage.log.producer_state import ProducerState
from ottla.storage.log.verification import VerificationGuard
from ottla.timeline import SnapshotRegistry

TRANSACTIONAL_ID = "x"
TOPIC = "t"
VERSION = 2
TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 1_000


class Bounds(NamedTuple):
    """Limits of events; together with the depth of the exploration they bound the model."""

    transactions: tuple[int, int] = (2, 1)
    """Transactions of each producer."""
    batches: tuple[int, ...] = (1, 1)
    """Batches of one transaction to each partition."""
    faults: int = 1
    """Lost responses and repeated requests."""
    moves: int = 1
    """Moves of the coordinator."""
    timeouts: int = 1
    first_epoch: int = 0
    """Initial epoch of the transactional id; near 32,766 the producer id changes."""


BOUNDS = {
    "all": Bounds(),
    "sequel": Bounds(transactions=(2, 0), batches=(1,)),
    "zombie": Bounds(transactions=(1, 1), batches=(1,)),
    "last-epoch": Bounds(transactions=(2, 0), batches=(1,), first_epoch=32_765),
}
"""All but the first are small enough to be explored completely: one partition, and either one producer with two
transactions or two with one each."""


class Rules(NamedTuple):
    """The rules that a test replaces to plant a defect."""

    verifies: bool = True
    """Partitions verify with the coordinator before a transaction begins there."""
    strict_markers: bool = True
    """A marker of the epoch of an open transaction does not end it."""
    bumps: bool = True
    """Each end of a transaction raises the epoch."""


class Label(NamedTuple):
    """One transaction as seen by its producer."""

    producer: int
    number: int


class Producer(NamedTuple):
    """The state of one producer."""

    phase: str = "new"
    """new, initializing, ready, ending, dead"""
    number: int = 0
    """Partitions of its transaction."""
    producer_id: int = -1
    producer_epoch: int = -1
    sent: frozenset[tuple[int, int]] = frozenset()
    """(partition, sequence) of this transaction."""
    acknowledged: frozenset[tuple[int, int]] = frozenset()


class Init(NamedTuple):
    """InitProducerId of a new instance."""

    producer: int


class Produce(NamedTuple):
    """A batch in flight to the leader of its partition."""

    label: Label
    partition: int
    producer_id: int
    producer_epoch: int
    sequence: int


class Ask(NamedTuple):
    """A batch that waits for the coordinator to add its partition to the transaction."""

    produce: Produce
    guard: VerificationGuard


class PendingResponse(NamedTuple):
    """The coordinator's response in flight to the partition."""

    produce: Produce
    guard: VerificationGuard
    error: ErrorCode


class End(NamedTuple):
    """EndTxn."""

    label: Label
    producer_id: int
    producer_epoch: int
    committed: bool


class Marker(NamedTuple):
    """WriteTxnMarkers for one partition."""

    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    version: int


class Move(NamedTuple):
    """The coordinator moves to another broker."""


class TimeOut(NamedTuple):
    """The open transaction is older than its timeout."""


Message = Init | Produce | Ask | PendingResponse | End | Marker


class Deliver(NamedTuple):
    """The message at `position` of the network arrives. `answered`: its response too. `copied`: it will arrive once
    more."""

    position: int
    message: Message
    answered: bool = True
    copied: bool = False


class Send(NamedTuple):
    """A producer sends a request."""

    message: Init | Produce | End


Step = Send | Deliver | Move | TimeOut


class Entry(NamedTuple):
    """A batch in a partition's log; a marker if it has no label."""

    label: Label | None
    producer_id: int
    producer_epoch: int
    sequence: int
    committed: bool


class Partition:
    """The log of one partition, whose high watermark is its end, and its producer state."""

    def __init__(self, *, verifies: bool) -> None:
        self.log: list[Entry] = []
        self.state = ProducerState(0)
        self.state.verification_enabled = verifies

    def append(self, produce: Produce, guard: VerificationGuard | None) -> ErrorCode:
        """Append a client's transactional batch of one record, as the leader does; a duplicate is not an error."""
        producer_id, epoch, sequence = produce.producer_id, produce.producer_epoch, produce.sequence
        try:
            duplicate = self.state.check(producer_id, epoch, sequence, 0, TRANSACTIONAL_MASK, guard)
        except KafkaError as error:
            return error.code
        if duplicate is None:
            offset = len(self.log)
            self.log.append(Entry(produce.label, producer_id, epoch, sequence, False))
            header = (offset, 49, 0, MAGIC_V2, 0, TRANSACTIONAL_MASK, 0, 0, 0, producer_id, epoch, sequence, 1)
            self.state.update(header, offset, 0)
        return ErrorCode.NONE

    def end_transaction(self, marker: Marker, rules: Rules) -> ErrorCode:
        """Append a marker, as the leader does."""
        version = marker.version if rules.strict_markers else VERSION - 1
        producer_id, epoch, coordinator_epoch = marker.producer_id, marker.producer_epoch, marker.coordinator_epoch
        try:
            self.state.check_marker(producer_id, epoch, coordinator_epoch, version)
        except KafkaError as error:
            return error.code
        offset = len(self.log)
        self.log.append(Entry(None, producer_id, epoch, -1, marker.committed))
        batch = end_transaction_marker(
            commit=marker.committed,
            timestamp_ms=0,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
        )
        self.state.end_transaction(BATCH_HEADER.unpack_from(batch), offset, batch)
        return ErrorCode.NONE

    @property
    def last_stable_offset(self) -> int:
        end = len(self.log)
        return min(end, self.state.transactions.settle(end))


class _Clock:
    """A constant clock; expirations are explicit steps."""

    def time_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0


class _UnusedDependencies:
    """Dependencies of a shard that its operations do not use."""

    def __getattr__(self, name: str) -> Any:
        raise InvariantError(f"an operation used {name}")


_CONTEXT = ShardContext(
    config=TransactionCoordinatorConfig,
    transaction_version=lambda: VERSION,
    clock=_Clock(),
    producer_ids=_UnusedDependencies(),
    markers=_UnusedDependencies(),
    memory=TransactionMemory(lambda: 2**62, _Clock(), lambda: MemoryUsage(0, 0)),
    writes=cast(Any, _UnusedDependencies),
)

_TIMER: Any = _UnusedDependencies()
_Result = CoordinatorResult[TransactionRecord, Any]


class World:
    """One state of the model. `copy` it, then `take` one of its `steps`."""

    def __init__(self, bounds: Bounds, rules: Rules) -> None:
        self.bounds = bounds
        self.producers = [Producer(), Producer()]
        self.partitions = [Partition(verifies=rules.verifies) for _ in bounds.batches]
        self.network: list[Message] = []
        self.metadata: TransactionMetadata | None = None
        self.coordinator_epoch = 0
        self.waiting: frozenset[int] = frozenset()
        """Partitions that have not received the marker of this coordinator."""
        self.next_producer_id = FIRST_PRODUCER_ID
        self.faults, self.moves, self.timeouts = bounds.faults, bounds.moves, bounds.timeouts
        self.decided: dict[Label, bool] = {}
        """Decisions of the coordinator on request of the producer."""
        self.acknowledged_ends: dict[Label, bool] = {}
        """The end of its transaction as reported to the producer."""
        self.confirmed: set[tuple[Label, int, int]] = set()
        """(transaction, partition, sequence) of batches that were acknowledged to the producer."""

    def copy(self) -> bytes:
        """A copy of this state; guards in the network stay the ones that partitions hold."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)

    def key(self) -> object:
        """Equal for states that have the same future."""
        return (
            tuple(self.producers),
            tuple((tuple(each.log), self._guards(each)) for each in self.partitions),
            tuple(sorted(map(self._message_key, self.network))),
            self.metadata,
            self.coordinator_epoch,
            self.waiting,
            (self.faults, self.moves, self.timeouts),
            frozenset(self.decided.items()),
            frozenset(self.acknowledged_ends.items()),
            frozenset(self.confirmed),
        )

    def _guards(self, partition: Partition) -> tuple[object, ...]:
        return tuple(
            (producer_id, guard.producer_epoch, guard.lowest_sequence)
            for producer_id, guard in partition.state.verifications.guards.items()
        )

    def _message_key(self, message: Message) -> tuple[object, ...]:
        if isinstance(message, Ask | PendingResponse):
            guards = self.partitions[message.produce.partition].state.verifications.guards
            good = guards.get(message.produce.producer_id) is message.guard
            return (type(message).__name__, good, message.produce, *message[2:])
        return (type(message).__name__, *message)

    # --- possible steps --------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[Step]:
        """All steps that are possible now."""
        for number, producer in enumerate(self.producers):
            yield from map(Send, self._sends(number, producer))
        seen = set()
        for position, message in enumerate(self.network):
            key = self._message_key(message)
            if key in seen:
                continue
            seen.add(key)
            yield Deliver(position, message)
            if self.faults and not isinstance(message, Ask | PendingResponse):
                yield Deliver(position, message, copied=True)
                yield Deliver(position, message, answered=False, copied=True)
        if self.metadata is not None:
            if self.moves:
                yield Move()
            if self.timeouts and self.metadata.state is TransactionState.ONGOING:
                yield TimeOut()

    def _sends(self, number: int, producer: Producer) -> Iterator[Init | Produce | End]:
        if producer.phase == "new":
            yield Init(number)
        if producer.phase != "ready" or producer.number >= self.bounds.transactions[number]:
            return
        label = Label(number, producer.number)
        identity = producer.producer_id, producer.producer_epoch
        for partition, count in enumerate(self.bounds.batches):
            sequence = sum(1 for sent, _ in producer.sent if sent == partition)
            if sequence < count:
                yield Produce(label, partition, *identity, sequence)
        if producer.sent:
            yield End(label, *identity, False)
            if producer.sent == producer.acknowledged:
                yield End(label, *identity, True)

    def take(self, step: Step, rules: Rules) -> None:
        """Take one step."""
        if isinstance(step, Send):
            self._send(step.message)
        elif isinstance(step, Move):
            self.moves -= 1
            self._move()
        elif isinstance(step, TimeOut):
            self.timeouts -= 1
            self._time_out()
        else:
            self._deliver(step, rules)

    def _send(self, message: Init | Produce | End) -> None:
        self.network.append(message)
        if isinstance(message, Init):
            self._change(message.producer, phase="initializing")
        elif isinstance(message, End):
            self._change(message.label.producer, phase="ending")
        else:
            sent = self.producers[message.label.producer].sent | {(message.partition, message.sequence)}
            self._change(message.label.producer, sent=sent)

    def _change(self, number: int, **fields: object) -> None:
        self.producers[number] = self.producers[number]._replace(**fields)  # type: ignore[arg-type]

    def _deliver(self, step: Deliver, rules: Rules) -> None:
        message = self.network.pop(step.position)
        if step.copied:
            self.faults -= 1
            self.network.append(message)
        if isinstance(message, Init):
            answer = self._initialize(rules)
            if step.answered:
                self._initialized(message, answer)
        elif isinstance(message, Produce):
            self._arrived(message, rules, answered=step.answered)
        elif isinstance(message, Ask):
            self._ask(message, rules)
        elif isinstance(message, PendingResponse):
            self._asked(message)
        elif isinstance(message, End):
            answer = self._end(message, rules)
            if step.answered:
                self._ended(message, answer)
        else:
            error = self.partitions[message.partition].end_transaction(message, rules)
            if step.answered:
                self._marked(message, error)

    # --- partitions ------------------------------------------------------------------------------------------------

    def _arrived(self, message: Produce, rules: Rules, *, answered: bool) -> None:
        partition = self.partitions[message.partition]
        guard = None
        if rules.verifies:
            try:
                guard = partition.state.begin_verification(
                    message.producer_id, message.producer_epoch, message.sequence, 0, supports_epoch_bump=True
                )
            except KafkaError as error:
                if answered:
                    self._produced(message, error.code)
                return
        if guard is not None:
            self.network.append(Ask(message, guard))
            return
        error_code = partition.append(message, None)
        if answered:
            self._produced(message, error_code)

    def _asked(self, message: PendingResponse) -> None:
        error = message.error
        if error is ErrorCode.NONE:
            error = self.partitions[message.produce.partition].append(message.produce, message.guard)
        self._produced(message.produce, error)

    # --- the coordinator -------------------------------------------------------------------------------------------

    def _spare(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def _operate(self, operation: Callable[[TransactionShard, int | None], _Result], rules: Rules) -> Any:
        """Run an operation on the coordinator's shard; its writes are committed at once."""
        result = operation(self._shard(), None)
        if isinstance(result.response, MissingInput):
            result = operation(self._shard(), self._spare())
        for record in result.records:
            metadata = record.metadata
            if metadata is None:
                raise InvariantError("the model never expires transactional ids")
            if self.metadata is None:
                metadata = metadata._replace(producer_epoch=self.bounds.first_epoch)
            elif metadata.state in PREPARED and not rules.bumps:
                metadata = metadata._replace(producer_epoch=self.metadata.producer_epoch)
            self._write(metadata)
        return result.response

    def _shard(self) -> TransactionShard:
        shard = TransactionShard(_CONTEXT, 0, SnapshotRegistry(), _TIMER)
        if self.metadata is not None:
            shard.replay(0, TransactionRecord(TRANSACTIONAL_ID, self.metadata), -1, -1)
        return shard

    def _initialize(self, rules: Rules) -> ProducerIdResult:
        answer: ProducerIdResult = self._operate(
            lambda shard, spare: shard.initialize(TRANSACTIONAL_ID, None, TIMEOUT_MS, spare), rules
        )
        if answer.error is ErrorCode.NONE and self.metadata is not None:
            # `first_epoch` replaces epoch 0.
            answer = answer._replace(producer_epoch=self.metadata.producer_epoch)
        return answer

    def _ask(self, message: Ask, rules: Rules) -> None:
        produce = message.produce
        partitions = frozenset({(TOPIC, produce.partition)})
        error = self._operate(
            lambda shard, _: shard.add_partitions(
                TRANSACTIONAL_ID, produce.producer_id, produce.producer_epoch, partitions, VERSION
            ),
            rules,
        )
        self.network.append(PendingResponse(produce, message.guard, error))

    def _end(self, message: End, rules: Rules) -> ProducerIdResult:
        producer = ProducerIdentity(message.producer_id, message.producer_epoch)
        before = self.metadata
        answer: ProducerIdResult = self._operate(
            lambda shard, spare: shard.end(TRANSACTIONAL_ID, producer, VERSION, spare, committed=message.committed),
            rules,
        )
        if self.metadata is not before:
            self.decided[message.label] = message.committed
            if not rules.bumps:
                answer = answer._replace(producer_epoch=message.producer_epoch)
        return answer

    def _time_out(self) -> None:
        metadata = self.metadata
        if metadata is None:
            raise InvariantError("no transaction is open")
        decision = abort_open(metadata, 0, VERSION, None)
        self._write(abort_open(metadata, 0, VERSION, self._spare()) if isinstance(decision, MissingInput) else decision)

    def _write(self, decision: TransactionMetadata | MissingInput) -> None:
        if isinstance(decision, MissingInput):
            raise InvariantError("a spare producer id was at hand")
        self.metadata = decision
        if decision.state in PREPARED:
            self._send_markers()

    def _send_markers(self) -> None:
        metadata = self.metadata
        if metadata is None:
            raise InvariantError("no transaction to end")
        self.waiting = frozenset(index for _, index in metadata.partitions)
        committed = metadata.state is TransactionState.PREPARE_COMMIT
        self.network.extend(
            Marker(
                index,
                metadata.producer_id,
                metadata.producer_epoch,
                self.coordinator_epoch,
                committed,
                metadata.client_version,
            )
            for index in sorted(self.waiting)
        )
        self._complete()

    def _marked(self, message: Marker, error: ErrorCode) -> None:
        metadata = self.metadata
        if (
            error is ErrorCode.NONE
            and metadata is not None
            and message.coordinator_epoch == self.coordinator_epoch
            and (message.producer_id, message.producer_epoch) == (metadata.producer_id, metadata.producer_epoch)
            and metadata.state in PREPARED
        ):
            self.waiting -= {message.partition}
            self._complete()

    def _complete(self) -> None:
        if self.metadata is not None and not self.waiting:
            self.metadata = completed(self.metadata, 0)

    def _move(self) -> None:
        """Another broker replays the coordinator's log, and sends the markers of decided transactions."""
        self.coordinator_epoch += 1
        if self.metadata is not None:
            record = decode_record(encode_key(TRANSACTIONAL_ID), encode_value(self.metadata, VERSION))
            if record is None or record.metadata is None:
                raise InvariantError("the log of transactions lost one")
            self.metadata = record.metadata
            if self.metadata.state in PREPARED:
                self._send_markers()

    # --- responses to producers ------------------------------------------------------------------------------------

    def _initialized(self, message: Init, answer: ProducerIdResult) -> None:
        if self.producers[message.producer].phase != "initializing":
            return
        if answer.error is ErrorCode.NONE:
            self.producers[message.producer] = Producer("ready", 0, answer.producer_id, answer.producer_epoch)
        else:
            self._change(message.producer, phase="new")

    def _produced(self, message: Produce, error: ErrorCode) -> None:
        label = message.label
        producer = self.producers[label.producer]
        batch = message.partition, message.sequence
        if error is ErrorCode.NONE:
            self.confirmed.add((label, *batch))
        if producer.number != label.number or producer.phase != "ready":
            return
        if error is ErrorCode.NONE:
            self._change(label.producer, acknowledged=producer.acknowledged | {batch})
        elif error is ErrorCode.CONCURRENT_TRANSACTIONS and batch not in producer.acknowledged:
            self._send_again(message)
        elif error in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED):
            self._change(label.producer, phase="dead")

    def _send_again(self, message: Produce | End) -> None:
        if message not in self.network:
            self.network.append(message)

    def _ended(self, message: End, answer: ProducerIdResult) -> None:
        label = message.label
        producer = self.producers[label.producer]
        if producer.number != label.number or producer.phase != "ending":
            return
        if answer.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            self._send_again(message)
        elif answer.error is ErrorCode.NONE:
            self.acknowledged_ends[label] = message.committed
            self.producers[label.producer] = Producer(
                "ready", label.number + 1, answer.producer_id, answer.producer_epoch
            )
        else:
            self._change(label.producer, phase="dead")


def restore(copy: bytes) -> World:
    """A separate state from the result of `World.copy`."""
    world: World = pickle.loads(copy)
    return world
