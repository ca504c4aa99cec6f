"""Runtime of one coordinator: all its shards on this broker, and the routing of operations to them.

The server reports the partitions of the internal topic that this broker leads. Request handlers submit named read and
write operations. `schedule_write` runs a write on the shard, replays its records and adds them to the open batch. The
batch is appended at the end of the tick. When the high watermark passes it, `done` is called.

Invariants: at most one context exists for each partition, in the newest known leader epoch; a response is never sent
before the state that it is based on is committed. All methods run on the loop. `done(response, None)` or `done(None,
error)` is called exactly once for each scheduled operation, possibly before the call returns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.clock import Clock
from ottla.common.platform.end_of_tick import EndOfTickScheduler
from ottla.coordinator.runtime.batch import Producer
from ottla.coordinator.runtime.context import CoordinatorContext, Failures, RuntimeParts
from ottla.coordinator.runtime.errors import append_error
from ottla.coordinator.runtime.key_hash import partition_for
from ottla.coordinator.runtime.loader import Loader
from ottla.coordinator.runtime.log import CoordinatorLog, Transaction
from ottla.coordinator.runtime.operation import ContextT, CoordinatorOperation, RequestT, ResponseT
from ottla.coordinator.runtime.records import CoordinatorResult, CoordinatorSerde
from ottla.coordinator.runtime.shard import CoordinatorShard, ShardFactory
from ottla.coordinator.runtime.slices import SlicedWork
from ottla.coordinator.runtime.state import REFUSALS, CoordinatorState
from ottla.coordinator.runtime.statistics import CoordinatorStatistics
from ottla.record.control import EndMarker

S = TypeVar("S", bound=CoordinatorShard[Any])
T = TypeVar("T")

DEFAULT_WRITE_TIMEOUT_MS = 5_000
"""`offsets.commit.timeout.ms`."""

NOT_STARTED = 0

WRITE_TXN_MARKER = "write-txn-marker"
"""Apache Kafka's name of the operation that ends a transaction."""

REMEMBERED_KEYS = 10_000
"""Maximum number of cached keys, since members send heartbeats constantly; the cache is cleared when it is full."""
REMEMBERED_KEY_LENGTH = 255

LOAD_WAIT_S = 1.0
"""Maximum time to wait for the end of a load; most loads take milliseconds."""


class CoordinatorRuntime(Generic[S]):
    """The coordinator of one internal topic."""

    __slots__ = ("_contexts", "_loader", "_partition_of_key", "_parts", "partition_count", "prepare", "statistics")

    def __init__(
        self,
        *,
        name: str,
        log: CoordinatorLog,
        serde: Callable[[], CoordinatorSerde[Any]],
        shard_factory: ShardFactory[S],
        clock: Clock,
        scheduler: EndOfTickScheduler,
        failures: Failures,
        compression: str = "none",
        write_timeout_ms: int = DEFAULT_WRITE_TIMEOUT_MS,
        after_large_load: Callable[[], None] = lambda: None,
    ) -> None:
        """`name` is the internal topic, for log lines; `compression` the codec name for written batches.

        `serde()` and `shard_factory` are called only for partitions that this broker coordinates.

        `after_large_load()` is called after a load that created many objects.
        """
        self.prepare: Callable[[Callable[[], None]], None] = lambda then: then()
        """Called before a shard is created: the load continues with `then()`, at once or later."""
        self.statistics = CoordinatorStatistics()
        self._parts = RuntimeParts(
            name,
            log,
            serde,
            shard_factory,
            clock,
            scheduler,
            failures,
            self.statistics,
            compression,
            write_timeout_ms,
            after_large_load,
            lambda then: self.prepare(then),  # noqa: PLW0108 - it may be replaced
            SlicedWork(clock, scheduler),
        )
        self._loader = Loader(self._parts)
        self._contexts: dict[int, CoordinatorContext[S]] = {}
        self._partition_of_key: dict[str, int] = {}
        self.partition_count = NOT_STARTED

    # --- lifecycle ----------------------------------------------------------------------------------------------------

    def start(self, partition_count: int) -> None:
        """The internal topic exists and has this many partitions; may be called again."""
        self.partition_count = partition_count
        self._partition_of_key.clear()

    def stop(self) -> None:
        """Append pending records and leave all partitions; waiting operations get NOT_COORDINATOR."""
        for context in list(self._contexts.values()):
            if context.state is CoordinatorState.ACTIVE:
                context.flush()
        for partition in list(self._contexts):
            self.resign(partition)
        self._loader.stop()
        self.partition_count = NOT_STARTED
        self._partition_of_key.clear()

    def become_leader(self, partition: int, leader_epoch: int) -> None:
        """Load `partition`, which this broker leads in `leader_epoch`. Ignored unless the epoch is newer than known.

        A shard of an older epoch is dropped: another broker may have written in between.
        """
        context = self._contexts.get(partition)
        if context is not None:
            if leader_epoch <= context.leader_epoch:
                return
            self.resign(partition)
        context = CoordinatorContext(self._parts, partition, leader_epoch, lambda: self._reload(partition))
        self._contexts[partition] = context
        self._loader.load(context)

    def resign(self, partition: int, leader_epoch: int | None = None) -> None:
        """Close `partition`, which this broker no longer leads as of `leader_epoch` (None: any epoch, e.g. deleted).

        Ignored when the partition is led in that or a newer epoch, or not led at all.
        """
        context = self._contexts.get(partition)
        if context is None or (leader_epoch is not None and leader_epoch <= context.leader_epoch):
            return
        del self._contexts[partition]
        self._loader.forget(context)
        context.close()

    @property
    def name(self) -> str:
        """Name of the internal topic."""
        return self._parts.name

    def high_watermark_updated(self, partition: int, offset: int) -> None:
        """The high watermark of a partition has risen; called by CoordinatorLog implementations."""
        context = self._contexts.get(partition)
        if context is not None:
            context.high_watermark_updated(offset)

    def _reload(self, partition: int) -> None:
        context = self._contexts.get(partition)
        if context is not None:
            self._loader.load(context)

    # --- operations ---------------------------------------------------------------------------------------------------

    def partition_for(self, key: str) -> int:
        """Return the partition that coordinates `key` (e.g. a group id), as Apache Kafka computes it.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE before `start`.
        """
        partition = self._partition_of_key.get(key)
        if partition is not None:
            return partition
        if self.partition_count == NOT_STARTED:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = partition_for(key, self.partition_count)
        if len(key) <= REMEMBERED_KEY_LENGTH:
            if len(self._partition_of_key) >= REMEMBERED_KEYS:
                self._partition_of_key.clear()
            self._partition_of_key[key] = partition
        return partition

    def answer(
        self,
        operation: CoordinatorOperation[ContextT, RequestT, ResponseT],
        context: ContextT,
        request: RequestT,
        done: Callable[[ResponseT], None],
    ) -> None:
        """Run an operation on the shard of its key; calls `done(response)`, also for errors before the shard is
        reached."""
        self.submit(operation, context, request, _answering(operation, context, request, done))

    def answer_in_transaction(
        self,
        operation: CoordinatorOperation[ContextT, RequestT, ResponseT],
        context: ContextT,
        request: RequestT,
        transaction: Transaction,
        done: Callable[[ResponseT], None],
    ) -> None:
        """`answer` for an operation with records that take effect when `transaction` is committed."""
        finished = _answering(operation, context, request, done)
        try:
            partition = self.partition_for(operation.key(request))
        except KafkaError as error:
            finished(None, error)
            return
        self.schedule_transactional_write(
            operation.name, partition, transaction, partial(operation.run, context, request), finished
        )

    def submit(
        self,
        operation: CoordinatorOperation[ContextT, RequestT, Any],
        context: ContextT,
        request: RequestT,
        done: Callable[[Any, KafkaError | None], None],
    ) -> None:
        """Run an operation on the shard of its key; calls `done(shard's response, None)` or `done(None, error)`.

        Errors: those of the key, COORDINATOR_NOT_AVAILABLE before `start`, those of `schedule_write`.
        """
        try:
            shard = self._contexts.get(self.partition_for(operation.key(request)))
        except KafkaError as error:
            done(None, error)
            return
        if shard is None:
            done(None, self._unknown())
        elif operation.reads:
            shard.read(operation.name, partial(operation.run, context, request), done)
        else:
            shard.write(operation.name, partial(operation.run, context, request), done)

    def schedule_write(
        self,
        name: str,
        partition: int,
        operation: Callable[[S], CoordinatorResult[Any, T]],
        done: Callable[[T | None, KafkaError | None], None],
    ) -> None:
        """Run `operation(shard)` and append the returned records; calls `done(response, None)` once they are committed.

        `name` identifies the operation in failures and metrics, so the set of names is small. The operation raises
        KafkaError to reject the request. Errors passed to `done`:

        - the operation's own error
        - NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, by the state of the shard
        - those of `append_error`, with the state reverted
        - RECORD_LIST_TOO_LARGE when the records don't fit in one batch
        - COORDINATOR_NOT_AVAILABLE when the high watermark did not pass the records within the write timeout
        """
        context = self._contexts.get(partition)
        if context is None:
            done(None, self._unknown())
        else:
            context.write(name, operation, done)

    def schedule_transactional_write(
        self,
        name: str,
        partition: int,
        transaction: Transaction,
        operation: Callable[[S], CoordinatorResult[Any, T]],
        done: Callable[[T | None, KafkaError | None], None],
    ) -> None:
        """`schedule_write` for records that take effect when `transaction` is committed; they form a batch of their
        own.

        First the log verifies with the transaction's coordinator that the partition is in the transaction. Errors
        passed to `done`, besides those of `schedule_write`: rejections by the transaction's coordinator or the log,
        such as INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS.
        """
        refusal = self._refusal(partition)
        if refusal is None and transaction.producer_id < 0:
            # Records without a producer id would take effect at once.
            refusal = KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if refusal is not None:
            done(None, refusal)
            return

        def verified(guard: Any, error: KafkaError | None) -> None:
            context = self._contexts.get(partition)
            if error is not None:
                done(None, append_error(error))
            elif context is None:
                done(None, self._unknown())
            else:
                producer = Producer(transaction.producer_id, transaction.producer_epoch, guard)
                context.write(name, operation, done, producer)

        self._parts.log.verify_transaction(partition, transaction, verified)

    def complete_transaction(
        self, partition: int, marker: EndMarker, done: Callable[[KafkaError | None], None]
    ) -> None:
        """Append `marker` to `partition` and apply it to its shard; calls `done(None)` once it is committed.

        Errors passed to `done`: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE by the state
        of the shard. COORDINATOR_NOT_AVAILABLE also when the high watermark did not pass the marker within the write
        timeout; the marker remains. After an error of `CoordinatorLog.append_end_marker` the transaction is still open.
        """
        context = self._contexts.get(partition)
        if context is None:
            done(self._unknown())
        else:
            context.complete_transaction(WRITE_TXN_MARKER, marker, done)

    def schedule_read(
        self,
        name: str,
        partition: int,
        operation: Callable[[S, int], T],
        done: Callable[[T | None, KafkaError | None], None],
    ) -> None:
        """Run `operation(shard, last committed offset)`, a read as of that offset. Errors as for `schedule_write`."""
        context = self._contexts.get(partition)
        if context is None:
            done(None, self._unknown())
        else:
            context.read(name, operation, done)

    def schedule_read_all(
        self, name: str, operation: Callable[[S, int], T], done: Callable[[list[T], KafkaError | None], None]
    ) -> None:
        """Read from every shard of this broker, in partition order; calls `done(responses, first error)`.

        Shards that are loading or failed count as errors, so that a caller never mistakes a partial result for all.
        """
        responses: list[T] = []
        errors: list[KafkaError] = []

        def one_done(response: T | None, error: KafkaError | None) -> None:
            if error is not None:
                errors.append(error)
            else:
                responses.append(response)  # type: ignore[arg-type]

        for partition in sorted(self._contexts):
            self.schedule_read(name, partition, operation, one_done)
        done(responses, errors[0] if errors else None)

    def schedule_write_all(
        self,
        name: str,
        operation: Callable[[S], CoordinatorResult[Any, T]],
        done: Callable[[dict[int, tuple[T | None, KafkaError | None]]], None],
    ) -> None:
        """Write to every active shard of this broker; calls `done` with response or error by partition."""
        partitions = [number for number in sorted(self._contexts) if self.state(number) is CoordinatorState.ACTIVE]
        outcomes: dict[int, tuple[T | None, KafkaError | None]] = {}
        if not partitions:
            done(outcomes)

        def one_done(partition: int, response: T | None, error: KafkaError | None) -> None:
            outcomes[partition] = (response, error)
            if len(outcomes) == len(partitions):
                done(dict(sorted(outcomes.items())))

        for partition in partitions:
            self.schedule_write(name, partition, operation, partial(one_done, partition))

    def after_loading(self, partition: int, then: Callable[[], None]) -> None:
        """Call `then()` when the shard of `partition` is not loading: now, when the load ends, or after at most
        `LOAD_WAIT_S`."""
        context = self._contexts.get(partition)
        if context is None or context.state is not CoordinatorState.LOADING:
            then()
            return
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                timer.cancel()
                then()

        timer = self._parts.scheduler.call_later(LOAD_WAIT_S, end)
        context.after_loading(end)

    def _refusal(self, partition: int) -> KafkaError | None:
        """Return the error that a write to `partition` would get now, or None."""
        context = self._contexts.get(partition)
        if context is None:
            return self._unknown()
        code = REFUSALS.get(context.state)
        return None if code is None else KafkaError(code)

    def _unknown(self) -> KafkaError:
        started = self.partition_count != NOT_STARTED
        return KafkaError(ErrorCode.NOT_COORDINATOR if started else ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # --- state and statistics -----------------------------------------------------------------------------------------

    def state(self, partition: int) -> CoordinatorState | None:
        """Return the state of a partition's shard, None if this broker does not lead it."""
        context = self._contexts.get(partition)
        return None if context is None else context.state

    def active_shard(self, partition: int) -> S | None:
        """Return the shard of a partition, None while it is not loaded here."""
        context = self._contexts.get(partition)
        return context.shard if context is not None and context.state is CoordinatorState.ACTIVE else None

    def leader_epoch(self, partition: int) -> int:
        """Return the epoch in which this broker leads a partition. Raises KafkaError NOT_COORDINATOR if it does not."""
        context = self._contexts.get(partition)
        if context is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return context.leader_epoch

    def state_counts(self) -> dict[CoordinatorState, int]:
        """Return the number of partitions by state, for metrics."""
        counts = dict.fromkeys(CoordinatorState, 0)
        for context in self._contexts.values():
            counts[context.state] += 1
        return counts

    def pending_records(self) -> int:
        """Return the number of replayed records to append at the end of this tick."""
        return sum(context.pending_records for context in self._contexts.values())

    def active_shards(self) -> list[tuple[int, S]]:
        """Return (partition, shard) of all loaded shards by partition, for metadata updates and metrics."""
        return [
            (partition, context.shard)
            for partition, context in sorted(self._contexts.items())
            if context.state is CoordinatorState.ACTIVE
        ]


def _answering(
    operation: CoordinatorOperation[ContextT, RequestT, ResponseT],
    context: ContextT,
    request: RequestT,
    done: Callable[[ResponseT], None],
) -> Callable[[Any, KafkaError | None], None]:
    """Return a callback that builds the response of an operation from its outcome."""

    def finished(response: Any, error: KafkaError | None) -> None:
        if error is not None:
            done(operation.refused(context, request, error))
        elif operation.answered is None:
            done(response)
        else:
            done(operation.answered(context, request, response))

    return finished
