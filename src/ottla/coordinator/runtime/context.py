"""Runtime of one shard: runs its operations, batches and appends their records, parks responses, reverts on failure.

A write sees the newest state, including the records of the open batch; a read sees the committed state. Records are
replayed when their operation has run, and appended in one batch at the end of the same tick. So the response of each
operation in the batch, even of one that only read, waits until the high watermark has passed the state that it saw.

Invariants:

- `last_committed_offset <= last_written_offset`. The registry has a snapshot of each of the two and, between them, of
  the end of every batch. The newest snapshot is that of `last_written_offset`; a failed append reverts to it.
- An operation is answered exactly once, and never before the state that it saw is committed.
- Records of a transaction form a batch of their own. A marker is replayed and appended like one; if the append fails,
  the transaction stays open, both in the state and in the log.
- One operation runs at a time. An operation that is submitted while another one runs (by a response callback) waits.
- Waiting operations are requests, at most one per connection, and timers, one per key; so their number is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.platform.clock import Clock
from ottla.common.platform.end_of_tick import EndOfTickScheduler
from ottla.coordinator.runtime.batch import (
    NO_PRODUCER,
    Done,
    OpenBatch,
    ParkedBatch,
    PendingOperation,
    Producer,
    record_size_bytes,
)
from ottla.coordinator.runtime.errors import append_error
from ottla.coordinator.runtime.log import CoordinatorLog
from ottla.coordinator.runtime.records import CoordinatorResult, CoordinatorSerde
from ottla.coordinator.runtime.shard import CoordinatorShard, ShardFactory
from ottla.coordinator.runtime.slices import SlicedWork
from ottla.coordinator.runtime.state import REFUSALS, TRANSITIONS, CoordinatorState
from ottla.coordinator.runtime.statistics import CoordinatorStatistics
from ottla.coordinator.runtime.timer import CoordinatorTimer, TimerOperation
from ottla.record.batch import HEADER_SIZE
from ottla.record.builder import RecordData, build_batch
from ottla.record.control import EndMarker
from ottla.timeline import SnapshotRegistry

S = TypeVar("S", bound=CoordinatorShard[Any])
T = TypeVar("T")

WRITE_BATCH_BYTES = 256 * 1024
"""A batch that reaches this size is appended at once, not at the end of the tick. This limits the time of one append.
An operation with larger records gets a batch of its own, up to `max.message.bytes`."""


LOAD, TIMER, UNLOAD = "load", "timer", "unload"
"""Names of internal operations; client operations have the names that they are scheduled with."""


class Failures(Protocol):
    """Reports a defect in a shard."""

    def __call__(self, where: str, error: Exception) -> None: ...


class RuntimeParts(NamedTuple):
    """Components that all shards of one runtime share."""

    name: str
    log: CoordinatorLog
    serde: Callable[[], CoordinatorSerde[Any]]
    shard_factory: ShardFactory[Any]
    clock: Clock
    scheduler: EndOfTickScheduler
    failures: Failures
    statistics: CoordinatorStatistics
    compression: str
    write_timeout_ms: int
    after_large_load: Callable[[], None]
    prepare: Callable[[Callable[[], None]], None]
    """Called before a shard is created; calls back at once, or later from the loop."""
    leftovers: SlicedWork
    """Releases closed shards step by step: dropping a million offsets at once would block the loop."""


class CoordinatorContext(Generic[S]):
    """A partition that this broker coordinates, during one leader epoch."""

    __slots__ = (
        "_after_loading",
        "_appending",
        "_batch",
        "_counts",
        "_high_watermark",
        "_parked",
        "_parts",
        "_readable_from",
        "_reload",
        "_running",
        "_shard",
        "_waiting",
        "last_committed_offset",
        "last_written_offset",
        "leader_epoch",
        "partition",
        "registry",
        "state",
        "timer",
    )

    def __init__(self, parts: RuntimeParts, partition: int, leader_epoch: int, reload: Callable[[], None]) -> None:
        """`reload()` is called when the state has to be read from the log again; state LOADING, shard empty."""
        self._parts = parts
        self._counts = parts.statistics.operations
        self._reload = reload
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = CoordinatorState.INITIAL
        self._shard: S | None = None
        self.last_written_offset = 0
        self.last_committed_offset = 0
        self._high_watermark = 0
        self._readable_from = 0
        self._batch: OpenBatch | None = None
        self._parked: deque[ParkedBatch] = deque()
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = False
        self._appending = False
        self._after_loading: list[Callable[[], None]] = []
        self.registry = SnapshotRegistry()
        self.timer = self._new_timer()

    def __repr__(self) -> str:
        return f"{self._parts.name}-{self.partition} in leader epoch {self.leader_epoch} ({self.state.value})"

    @property
    def shard(self) -> S:
        """The state machine, empty at the first use of a load; raises InvariantError before and after leadership."""
        if self._shard is None and self.state is CoordinatorState.LOADING:
            self._shard = self._parts.shard_factory(self.partition, self.registry, self.timer)
        if self._shard is None:
            raise InvariantError(f"{self} has no shard")
        return self._shard

    @property
    def pending_records(self) -> int:
        """Number of records in the open batch."""
        return 0 if self._batch is None else len(self._batch.records)

    def after_loading(self, then: Callable[[], None]) -> None:
        """Call `then()` once the current load has ended, successfully or not."""
        self._after_loading.append(then)

    # --- lifecycle ----------------------------------------------------------------------------------------------------

    def start_loading(self) -> None:
        """Wait for the loader, without a shard."""
        self._transition(CoordinatorState.LOADING)
        self.registry = SnapshotRegistry()
        self.timer = self._new_timer()
        self._high_watermark = 0

    def finish_loading(self, end_offset: int, high_watermark: int) -> None:
        """Complete a load: everything below `end_offset` was replayed, with snapshots from the high watermark on."""
        self.registry.snapshot(end_offset)
        self._high_watermark = max(self._high_watermark, high_watermark)
        self.last_written_offset = self._readable_from = end_offset
        committed = self.registry.floor(min(self._high_watermark, end_offset))
        self.last_committed_offset = self.registry.offsets()[0] if committed is None else committed
        self.registry.delete_up_to(self.last_committed_offset)
        self.shard.loaded()
        self._transition(CoordinatorState.ACTIVE)

    def fail(self) -> None:
        """Drop the state, which is lost or can't be loaded. A later load may restore it."""
        self._end(CoordinatorState.FAILED)

    def close(self) -> None:
        """End leadership: nothing can be written any more, and all waiting clients get NOT_COORDINATOR."""
        self._end(CoordinatorState.CLOSED)

    def _end(self, state: CoordinatorState) -> None:
        self._transition(state)
        self.timer.cancel_all()
        error = KafkaError(ErrorCode.NOT_COORDINATOR)
        parked, self._parked = self._parked, deque()
        batch, self._batch = self._batch, None
        shard, self._shard = self._shard, None
        for waiting in parked:
            self._answer(waiting, error)
        if batch is not None:
            self._finish_all(batch.operations, error)
        if shard is not None:
            self._call(UNLOAD, shard.unloaded)
            self._parts.leftovers.add(shard.release())
        self.registry = SnapshotRegistry()

    def _transition(self, state: CoordinatorState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise InvariantError(f"{self}: invalid transition to {state.value}")
        self.state = state
        if self._after_loading and state is not CoordinatorState.LOADING:
            waiting, self._after_loading = self._after_loading, []
            for then in waiting:
                self._parts.scheduler.call_soon(self._call, LOAD, then)

    def _new_timer(self) -> CoordinatorTimer:
        return CoordinatorTimer(self._parts.clock, self._parts.scheduler, self._submit_timer)

    def _submit_timer(self, operation: TimerOperation, done: Done) -> None:
        self.write(TIMER, lambda _shard: operation(), done)

    # --- operations ---------------------------------------------------------------------------------------------------

    def read(
        self, name: str, operation: Callable[[S, int], T], done: Callable[[T | None, KafkaError | None], None]
    ) -> None:
        """Run `operation(shard, last committed offset)` now.

        Returns COORDINATOR_LOAD_IN_PROGRESS until the high watermark has reached the loaded end offset. Before that, a
        read would miss records that the previous coordinator acknowledged (as in KIP-207 for ListOffsets).
        """
        code = REFUSALS.get(self.state)
        if code is None and self._high_watermark < self._readable_from:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if code is not None:
            self._call(name, done, None, KafkaError(code))
            return
        self._counts[name] += 1
        try:
            response = operation(self.shard, self.last_committed_offset)
        except KafkaError as error:
            self._call(name, done, None, error)
            return
        except InvariantError:
            raise
        except Exception as error:
            self._defect(f"running {name}", error)
            self._call(name, done, None, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._call(name, done, response, None)

    def write(
        self,
        name: str,
        operation: Callable[[S], CoordinatorResult[Any, Any]],
        done: Done,
        producer: Producer = NO_PRODUCER,
    ) -> None:
        """Run `operation(shard)` now, or after the one that is running."""
        if self._running:
            self._waiting.append(partial(self._write, name, operation, done, producer))
            return
        self._running = True
        try:
            self._write(name, operation, done, producer)
            while self._waiting:
                self._waiting.popleft()()
        finally:
            self._running = False

    def complete_transaction(self, name: str, marker: EndMarker, done: Callable[[KafkaError | None], None]) -> None:
        """Append and replay `marker`, now or after the operation that is running."""
        self._waiting.append(partial(self._complete_transaction, name, marker, done))
        if self._running:
            return
        self._running = True
        try:
            while self._waiting:
                self._waiting.popleft()()
        finally:
            self._running = False

    def _write(
        self, name: str, operation: Callable[[S], CoordinatorResult[Any, Any]], done: Done, producer: Producer
    ) -> None:
        if producer is not NO_PRODUCER:
            self.flush()
        code = REFUSALS.get(self.state)
        if code is not None:
            self._call(name, done, None, KafkaError(code))
            return
        self._counts[name] += 1
        try:
            result = operation(self.shard)
            records = self._encode(result.records)
        except KafkaError as error:
            self._call(name, done, None, error)
            return
        except InvariantError:
            raise
        except Exception as error:
            self._defect(f"running {name}", error)
            self._call(name, done, None, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        waiting = PendingOperation(name, result.response, result.appended, done)
        if self.state is not CoordinatorState.ACTIVE:
            # Leadership ended while the operation ran, within one of its callbacks.
            self._finish(waiting, KafkaError(REFUSALS[self.state]))
        elif not records:
            self._wait_for_pending(waiting)
        elif producer is not NO_PRODUCER:
            self._add_transactional(result.records, records, waiting, producer)
        elif result.reserve_bytes and self._is_too_large(records, result.reserve_bytes):
            text = "the records leave too little room below max.message.bytes for later records"
            self._finish(waiting, KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, text))
        elif result.atomic:
            self._add(result.records if result.replay else (), records, waiting)
        else:
            self._add_piecemeal(result, records, waiting)

    def _encode(self, records: Sequence[Any]) -> list[RecordData]:
        if not records:
            return []
        timestamp_ms = self._parts.clock.time_ms() if self._batch is None else self._batch.timestamp_ms
        encode = self._parts.serde().encode
        return [RecordData(timestamp_ms, *encode(record)) for record in records]

    def _wait_for_pending(self, operation: PendingOperation) -> None:
        """Answer once everything that the operation may have seen is committed; mostly at once.

        Behind a parked batch it shares that batch's timeout, so it waits for less than the full timeout.
        """
        if self._batch is not None:
            self._batch.operations.append(operation)
        elif self.last_committed_offset >= self.last_written_offset:
            self._finish(operation, None)
        elif self._parked and self._parked[-1].operations:
            self._parked[-1].operations.append(operation)
        else:
            self._park(self.last_written_offset, [operation])

    # --- the open batch -----------------------------------------------------------------------------------------------

    def _batch_limit_bytes(self) -> int:
        try:
            return min(WRITE_BATCH_BYTES, self._parts.log.max_batch_bytes(self.partition))
        except KafkaError:
            # The replica is being removed; the append will return that error to all operations.
            return WRITE_BATCH_BYTES

    def _is_too_large(self, records: Sequence[RecordData], reserve_bytes: int) -> bool:
        size_bytes = HEADER_SIZE + sum(map(record_size_bytes, records)) + reserve_bytes
        if size_bytes <= self._batch_limit_bytes():
            return False
        try:
            return size_bytes > self._parts.log.max_batch_bytes(self.partition)
        except KafkaError:
            return False  # the append will report it

    def _add(self, replayed: Sequence[Any], records: Sequence[RecordData], operation: PendingOperation) -> None:
        """Add the records of one operation to the open batch; flush that batch first if it has no room."""
        size_bytes = sum(map(record_size_bytes, records))
        batch = self._batch
        if batch is not None and batch.size_bytes + size_bytes > batch.limit_bytes:
            error = self.flush()
            if error is not None:
                # The flush failed, so the state on which the operation is based was reverted.
                self._finish(operation, error)
                return
        batch = self._open_batch()
        batch.operations.append(operation)
        if not self._replay(operation.name, batch, replayed):
            return
        batch.records += records
        batch.size_bytes += size_bytes
        if batch.size_bytes >= batch.limit_bytes:
            self.flush()

    def _add_transactional(
        self, replayed: Sequence[Any], records: Sequence[RecordData], operation: PendingOperation, producer: Producer
    ) -> None:
        """Append the records of one operation as a batch of the transaction; no other batch is open."""
        batch = self._batch = OpenBatch(self.last_written_offset, self._parts.clock.time_ms(), producer)
        batch.operations.append(operation)
        if self._replay(operation.name, batch, replayed):
            batch.records += records
            self.flush()

    def _add_piecemeal(
        self, result: CoordinatorResult[Any, Any], records: Sequence[RecordData], operation: PendingOperation
    ) -> None:
        """Add records one by one; the operation is answered with the last of them, or the first failure."""
        last = len(records) - 1
        failure: list[KafkaError] = []

        def note(_response: object, error: KafkaError | None) -> None:
            if error is not None:
                failure.append(error)

        for index, data in enumerate(records):
            piece = operation if index == last else PendingOperation(operation.name, None, None, note)
            self._add((result.records[index],) if result.replay else (), (data,), piece)
            if failure and index != last:
                self._finish(operation, failure[0])
                return

    def _open_batch(self) -> OpenBatch:
        batch = self._batch
        if batch is None:
            batch = OpenBatch(
                self.last_written_offset, self._parts.clock.time_ms(), NO_PRODUCER, self._batch_limit_bytes()
            )
            batch.size_bytes = HEADER_SIZE
            self._batch = batch
            self._parts.scheduler.at_end_of_turn(self._flush_batch, batch)
        return batch

    def _replay(self, name: str, batch: OpenBatch, records: Sequence[Any]) -> bool:
        """Apply records to the state; on a defect the whole batch fails, since the state is between two records."""
        replay = self.shard.replay
        producer_id, producer_epoch, _ = batch.producer
        try:
            for offset, record in enumerate(records, batch.next_offset):
                replay(offset, record, producer_id, producer_epoch)
        except Exception as error:
            self._fail_batch(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            if isinstance(error, InvariantError):
                raise
            self._defect(f"replaying what {name} returned", error)
            return False
        return True

    def _flush_batch(self, batch: OpenBatch) -> None:
        """Flush `batch` at the end of its tick; it may already be flushed and another one open."""
        if self._batch is batch:
            self.flush()

    def flush(self) -> KafkaError | None:
        """Append the open batch; return the error after failing its operations, or None."""
        batch = self._batch
        if batch is None:
            return None
        try:
            end_offset = self._append(batch)
        except KafkaError as error:
            failure = append_error(error)
        except InvariantError:
            raise
        except Exception as error:
            self._defect("appending a batch", error)
            failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            if end_offset == batch.next_offset:
                self._appended(batch, end_offset)
                return None
            return self._out_of_step(batch.next_offset, end_offset)
        self._fail_batch(failure)
        return failure

    def _append(self, batch: OpenBatch) -> int:
        parts = self._parts
        producer_id, producer_epoch, guard = batch.producer
        buffer = build_batch(
            batch.records,
            compression=parts.compression,
            leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=batch.producer is not NO_PRODUCER,
        )
        size_bytes = len(buffer)
        if size_bytes > batch.limit_bytes:
            limit_bytes = parts.log.max_batch_bytes(self.partition)
            if size_bytes > limit_bytes:
                raise KafkaError(
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                    f"one batch has {size_bytes} bytes of records, more than max.message.bytes={limit_bytes}",
                )
        self._appending = True
        try:
            end_offset = parts.log.append(self.partition, self.leader_epoch, buffer, guard)
        finally:
            self._appending = False
        parts.statistics.batches_appended += 1
        parts.statistics.records_appended += len(batch.records)
        parts.statistics.bytes_appended += size_bytes
        return end_offset

    def _appended(self, batch: OpenBatch, end_offset: int) -> None:
        self._batch = None
        self._written(end_offset, batch.operations)

    def _written(self, end_offset: int, operations: list[PendingOperation]) -> None:
        self.last_written_offset = end_offset
        self.registry.snapshot(end_offset)
        if self._high_watermark >= end_offset:
            # Usual if this broker is the only in-sync replica: nothing to park.
            self._maybe_commit()
            self._finish_all(operations, None)
        else:
            self._park(end_offset, operations)

    def _fail_batch(self, error: KafkaError) -> None:
        """Revert to the last appended state and fail all operations of the batch."""
        batch, self._batch = self._batch, None
        self._parts.statistics.append_failures += 1
        self.registry.revert_to(self.last_written_offset)
        if batch is not None:
            self._finish_all(batch.operations, error)

    def _out_of_step(self, expected_offset: int, end_offset: int) -> KafkaError:
        """The log grew outside this context: the state does not match the log, so it is loaded again."""
        self._defect(
            "appending a batch",
            KafkaError(
                ErrorCode.NOT_COORDINATOR, f"{self} expected the log to end at {expected_offset}, not {end_offset}"
            ),
        )
        self.fail()
        self._reload()
        return KafkaError(ErrorCode.NOT_COORDINATOR)

    # --- the end of a transaction -------------------------------------------------------------------------------------

    def _complete_transaction(self, name: str, marker: EndMarker, done: Callable[[KafkaError | None], None]) -> None:
        self.flush()
        code = REFUSALS.get(self.state)
        if code is not None:
            self._call(name, done, KafkaError(code))
            return
        self._counts[name] += 1
        operation = PendingOperation(name, None, None, lambda _response, error: done(error))
        try:
            self.shard.replay_end_transaction_marker(
                marker.producer_id, marker.producer_epoch, committed=marker.committed
            )
            end_offset = self._append_end_marker(marker)
        except KafkaError as error:
            failure = error
        except InvariantError:
            raise
        except Exception as error:
            self._defect(f"running {name}", error)
            failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            if end_offset == self.last_written_offset + 1:
                self._written(end_offset, [operation])
            else:
                self._finish(operation, self._out_of_step(self.last_written_offset + 1, end_offset))
            return
        self._parts.statistics.append_failures += 1
        self.registry.revert_to(self.last_written_offset)
        self._finish(operation, failure)

    def _append_end_marker(self, marker: EndMarker) -> int:
        self._appending = True
        try:
            end_offset = self._parts.log.append_end_marker(self.partition, self.leader_epoch, marker)
        finally:
            self._appending = False
        self._parts.statistics.batches_appended += 1
        self._parts.statistics.records_appended += 1
        return end_offset

    # --- waiting for the high watermark -------------------------------------------------------------------------------

    def high_watermark_updated(self, offset: int) -> None:
        """The high watermark of the partition has risen to `offset`; also called inside an append."""
        if offset <= self._high_watermark:
            return
        self._high_watermark = offset
        if self.state is CoordinatorState.ACTIVE and not self._appending:
            self._maybe_commit()

    def _maybe_commit(self) -> None:
        """Commit all complete batches below the high watermark and answer their operations."""
        committed = self.registry.floor(self._high_watermark)
        if committed is None or committed <= self.last_committed_offset:
            return
        self.last_committed_offset = committed
        self.registry.delete_up_to(committed)
        while self._parked and self._parked[0].end_offset <= committed:
            self._answer(self._parked.popleft(), None)

    def _park(self, end_offset: int, operations: list[PendingOperation]) -> None:
        parked = ParkedBatch(end_offset, operations)
        self._parked.append(parked)
        parked.timer = self._parts.scheduler.call_later(self._parts.write_timeout_ms / 1000, self._expire, parked)

    def _expire(self, parked: ParkedBatch) -> None:
        """The high watermark is too slow. The records remain: they may be committed later, as with any timeout."""
        parked.timer = None
        if not parked.operations:
            return
        self._parts.statistics.write_timeouts += 1
        self._answer(parked, append_error(KafkaError(ErrorCode.REQUEST_TIMED_OUT)))

    def _answer(self, parked: ParkedBatch, error: KafkaError | None) -> None:
        if parked.timer is not None:
            parked.timer.cancel()
            parked.timer = None
        operations, parked.operations = parked.operations, []
        self._finish_all(operations, error)

    # --- responses ----------------------------------------------------------------------------------------------------

    def _finish_all(self, operations: Sequence[PendingOperation], error: KafkaError | None) -> None:
        for operation in operations:
            self._finish(operation, error)

    def _finish(self, operation: PendingOperation, error: KafkaError | None) -> None:
        if operation.appended is not None:
            self._call(operation.name, operation.appended, error)
        self._call(operation.name, operation.done, None if error is not None else operation.response, error)

    def _call(self, name: str, callback: Callable[..., None], *args: object) -> None:
        """Run a callback. An exception is reported and does not affect other operations."""
        try:
            callback(*args)
        except InvariantError:
            raise
        except Exception as error:
            self._defect(f"answering {name}", error)

    def _defect(self, action: str, error: Exception) -> None:
        self._parts.failures(f"{self._parts.name}: {action}", error)
