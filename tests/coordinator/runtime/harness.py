"""A runtime on virtual time over in-memory logs; tests control their appends, reads and high watermarks.

The shard is a map of numbers. Its log contains real record batches, so the runtime can load its own writes.
"""

from __future__ import annotations

import heapq
import itertools
import json
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.end_of_tick import EndOfTickScheduler
from ottla.coordinator.runtime import (
    CoordinatorRecord,
    CoordinatorResult,
    CoordinatorRuntime,
    CoordinatorTimer,
    LogOffsets,
    ReadDone,
    Transaction,
    VerificationDone,
)
from ottla.record.batch import BatchView, iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.record.control import ControlRecordType, EndMarker, control_record_type, end_transaction_marker
from ottla.timeline import SnapshotRegistry, TimelineDict

Done = Callable[[Any, KafkaError | None], None]


class Handle:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualTime:
    """Clock and scheduler. A tick runs the callbacks that were due at its start, as an event loop does."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.wall_clock_s = 1_700_000_000.0
        """Start of the wall clock; an operator may set it, which does not affect timers."""
        self.longest_callback_s = 0.0
        self._soon: deque[tuple[Handle, Callable[..., Any], tuple[Any, ...]]] = deque()
        self._later: list[tuple[float, int, Handle, Callable[..., Any], tuple[Any, ...]]] = []
        self._numbers = itertools.count()

    def time_ms(self) -> int:
        return int((self.wall_clock_s + self.now_s) * 1000)

    def monotonic(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Handle:
        handle = Handle()
        self._soon.append((handle, callback, args))
        return handle

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Handle:
        handle = Handle()
        heapq.heappush(self._later, (self.now_s + delay, next(self._numbers), handle, callback, args))
        return handle

    @property
    def armed(self) -> int:
        """Timers that were not cancelled."""
        return sum(not handle.cancelled for _, _, handle, _, _ in self._later)

    def turn(self) -> bool:
        """Run one tick of the loop; False when it was idle."""
        while self._later and (self._later[0][0] <= self.now_s or self._later[0][2].cancelled):
            _, _, handle, callback, args = heapq.heappop(self._later)
            self._soon.append((handle, callback, args))
        ready, self._soon = self._soon, deque()
        for handle, callback, args in ready:
            if not handle.cancelled:
                started_s = self.now_s
                callback(*args)
                self.longest_callback_s = max(self.longest_callback_s, self.now_s - started_s)
        return bool(ready)

    def settle(self) -> None:
        """Run ticks until the loop is idle."""
        for _ in range(100_000):
            if not self.turn():
                return
        raise RuntimeError("the loop does not come to rest")

    def advance(self, seconds: float) -> None:
        """Let time pass, timer by timer."""
        end_s = self.now_s + seconds
        self.settle()
        while self._later and self._later[0][0] <= end_s:
            self.now_s = max(self.now_s, self._later[0][0])
            self.settle()
        self.now_s = end_s
        self.settle()


class MemoryLog:
    """The partitions of an internal topic. `commits` False: only `commit` moves the high watermark."""

    def __init__(self, time: VirtualTime, partitions: int) -> None:
        self.time = time
        self.batches: list[list[bytes]] = [[] for _ in range(partitions)]
        self.start = [0] * partitions
        self.end = [0] * partitions
        self.high_watermark = [0] * partitions
        self.leader_epoch: list[int | None] = [None] * partitions
        self.commits = True
        self.batch_bytes = 1024 * 1024
        self.append_failures: deque[Exception] = deque()
        self.read_failures: deque[KafkaError] = deque()
        self.offsets_failures: deque[KafkaError] = deque()
        self.high_watermark_updated: Callable[[int, int], None] = lambda partition, offset: None
        self.reads = 0
        self.verified: list[tuple[int, Transaction]] = []
        self.verification_failures: deque[KafkaError] = deque()
        self.verifications: deque[Callable[[], None]] | None = None
        self.guards: list[Any] = []

    def append(self, partition: int, leader_epoch: int, batch: bytearray, guard: Any = None) -> int:
        self.guards.append(guard)
        if self.append_failures:
            raise self.append_failures.popleft()
        if self.leader_epoch[partition] != leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.put(partition, batch)
        if self.commits:
            self.commit(partition, self.end[partition])
        return self.end[partition]

    def append_end_marker(self, partition: int, leader_epoch: int, marker: EndMarker) -> int:
        batch = end_transaction_marker(
            commit=marker.committed,
            timestamp_ms=self.time.time_ms(),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
        )
        return self.append(partition, leader_epoch, batch)

    def verify_transaction(self, partition: int, transaction: Transaction, done: VerificationDone) -> None:
        """Responds at once with a guard that names the transaction, or when `verifications` are called."""
        self.verified.append((partition, transaction))
        error = self.verification_failures.popleft() if self.verification_failures else None

        def answer() -> None:
            done(None if error is not None else f"guard of {transaction.transactional_id}", error)

        if self.verifications is None:
            answer()
        else:
            self.verifications.append(answer)

    def put(self, partition: int, batch: bytearray) -> None:
        """Append without checks, as another leader would have."""
        struct.pack_into(">q", batch, 0, self.end[partition])
        self.batches[partition].append(bytes(batch))
        self.end[partition] = BatchView(batch).next_offset

    def commit(self, partition: int, offset: int) -> None:
        """Raise the high watermark."""
        self.high_watermark[partition] = offset
        self.high_watermark_updated(partition, offset)

    def truncate(self, partition: int, offset: int) -> None:
        """Drop whole batches from `offset` on."""
        kept = [batch for batch in self.batches[partition] if BatchView(batch).next_offset <= offset]
        self.batches[partition] = kept
        self.end[partition] = BatchView(kept[-1]).next_offset if kept else self.start[partition]

    def ends(self, partition: int) -> list[int]:
        """Ends of the batches."""
        return [BatchView(batch).next_offset for batch in self.batches[partition]]

    def max_batch_bytes(self, partition: int) -> int:
        return self.batch_bytes

    def offsets(self, partition: int) -> LogOffsets:
        if self.offsets_failures:
            raise self.offsets_failures.popleft()
        if self.leader_epoch[partition] is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return LogOffsets(self.start[partition], self.high_watermark[partition], self.end[partition])

    def read(self, partition: int, offset: int, max_bytes: int, done: ReadDone) -> None:
        self.reads += 1
        if self.read_failures:
            self.time.call_soon(done, None, self.read_failures.popleft())
            return
        out = bytearray()
        for batch in self.batches[partition]:
            if BatchView(batch).next_offset > offset:
                if out and len(out) + len(batch) > max_bytes:
                    out += batch[: max_bytes - len(out)]
                    break
                out += batch
        self.time.call_soon(done, out, None)

    def records(self, partition: int, end: int | None = None) -> list[Put]:
        """Return the decoded records below `end` that have taken effect; those of a transaction at its marker."""
        found: list[Put] = []
        pending: dict[int, list[Put]] = {}
        for batch in self.views(partition):
            if end is not None and batch.next_offset > end:
                break
            records = list(batch.records())
            if batch.is_control:
                ended = pending.pop(batch.producer_id, [])
                found += ended if control_record_type(records[0]) is ControlRecordType.COMMIT else []
                continue
            decoded = [JsonSerde().decode(record.key or b"", record.value) for record in records]
            puts = [put for put in decoded if put is not None]
            if batch.is_transactional:
                pending.setdefault(batch.producer_id, []).extend(puts)
            else:
                found += puts
        return found

    def views(self, partition: int) -> list[BatchView]:
        """All batches."""
        return [batch for raw in self.batches[partition] for batch in iter_batches(raw)]


class Put(NamedTuple):
    """The shard's record: `key` has `number` from now on; None removes it."""

    key: str
    number: int | None


class JsonSerde:
    def encode(self, record: Put) -> CoordinatorRecord:
        if record.key == "unencodable":
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return CoordinatorRecord(
            record.key.encode(), None if record.number is None else json.dumps(record.number).encode()
        )

    def decode(self, key: bytes, value: bytes | None) -> Put | None:
        if key.startswith(b"unknown"):
            return None
        if value == b"unreadable":
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the value says nothing")
        return Put(key.decode(), None if value is None else json.loads(value))

    def without_value(self, key: bytes) -> Put | None:
        """Keys with the prefix `old` retain their value."""
        return None if key.startswith(b"old") else Put(key.decode(), None)


class MapShard:
    """Numbers by key."""

    def __init__(self, partition: int, registry: SnapshotRegistry, timer: CoordinatorTimer, setup: Setup) -> None:
        self.partition = partition
        self.timer = timer
        self.numbers: TimelineDict[str, int] = TimelineDict(registry)
        self.pending: TimelineDict[int, tuple[Put, ...]] = TimelineDict(registry)
        """Numbers of open transactions, by producer id."""
        self.setup = setup
        self.is_loaded = False
        self.is_unloaded = False
        self.offsets: list[int] = []

    def replay(self, offset: int, record: Put, producer_id: int, producer_epoch: int) -> None:
        self.setup.time.now_s += self.setup.replay_s
        self.offsets.append(offset)
        if record.key == "poison":
            raise ValueError("a record that can't be replayed")
        if producer_id >= 0:
            self.pending[producer_id] = (*self.pending.get(producer_id, ()), record)
        else:
            self._put(record)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        for record in self.pending.pop(producer_id, ()):
            if committed:
                self._put(record)
        if self.setup.poisoned_markers:
            raise ValueError("a marker that can't be replayed")

    def _put(self, record: Put) -> None:
        if record.number is None:
            self.numbers.pop(record.key, None)
        else:
            self.numbers[record.key] = record.number

    def loaded(self) -> None:
        self.is_loaded = True

    def unloaded(self) -> None:
        self.is_unloaded = True

    def release(self) -> Iterator[None]:
        while self.numbers:
            dict.popitem(self.numbers)
            self.setup.time.now_s += self.setup.replay_s
            yield


class Outcome:
    """Collects what `done` was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ErrorCode | None]] = []

    def __call__(self, response: Any, error: KafkaError | None) -> None:
        self.calls.append((response, None if error is None else error.code))

    @property
    def pending(self) -> bool:
        return not self.calls

    @property
    def response(self) -> Any:
        assert len(self.calls) == 1
        assert self.calls[0][1] is None, self.calls
        return self.calls[0][0]

    @property
    def error(self) -> ErrorCode | None:
        assert len(self.calls) == 1
        return self.calls[0][1]


class Setup:
    """A runtime with its surroundings."""

    def __init__(self, partitions: int = 3) -> None:
        self.time = VirtualTime()
        self.log = MemoryLog(self.time, partitions)
        self.replay_s = 0.0
        self.defects: list[tuple[str, Exception]] = []
        self.shards: list[MapShard] = []
        self.partitions = partitions
        self.large_loads = 0
        self.poisoned_markers = False
        self.preparations: list[Callable[[], None]] | None = None
        """Loads that wait for the code of their shards; None: it is there."""
        self.runtime = self.new_runtime()

    def new_runtime(self) -> CoordinatorRuntime[MapShard]:
        """Create the runtime as after a process restart: only the log is left."""

        def new_shard(partition: int, registry: SnapshotRegistry, timer: CoordinatorTimer) -> MapShard:
            self.shards.append(MapShard(partition, registry, timer, self))
            return self.shards[-1]

        self.runtime = CoordinatorRuntime(
            name="__numbers",
            log=self.log,
            serde=JsonSerde,
            shard_factory=new_shard,
            clock=self.time,
            scheduler=EndOfTickScheduler(self.time),
            failures=lambda where, error: self.defects.append((where, error)),
            after_large_load=self._large_load,
        )
        self.runtime.prepare = self._prepare
        self.runtime.start(self.partitions)
        self.log.high_watermark_updated = self.runtime.high_watermark_updated
        return self.runtime

    def _prepare(self, then: Callable[[], None]) -> None:
        if self.preparations is None:
            then()
        else:
            self.preparations.append(then)

    def _large_load(self) -> None:
        self.large_loads += 1

    def lead(self, partition: int = 0, leader_epoch: int = 1) -> None:
        """Become leader and finish loading."""
        self.log.leader_epoch[partition] = leader_epoch
        self.runtime.become_leader(partition, leader_epoch)
        self.time.settle()

    def shard(self, partition: int = 0) -> MapShard:
        return dict(self.runtime.active_shards())[partition]

    def write(self, *records: Put, partition: int = 0, response: Any = "written", **options: Any) -> Outcome:
        """Schedule a write of these records."""
        outcome = Outcome()
        result = CoordinatorResult(records, response, **options)
        self.runtime.schedule_write("write", partition, lambda shard: result, outcome)
        return outcome

    def write_in_transaction(
        self, *records: Put, producer_id: int = 7, partition: int = 0, response: Any = "written"
    ) -> Outcome:
        """Schedule a write of these records in a transaction."""
        outcome = Outcome()
        result = CoordinatorResult(records, response)
        transaction = Transaction(f"t{producer_id}", producer_id, 0, add=True)
        self.runtime.schedule_transactional_write("write", partition, transaction, lambda shard: result, outcome)
        return outcome

    def end_transaction(self, producer_id: int = 7, partition: int = 0, *, committed: bool = True) -> Outcome:
        """Schedule the marker of a producer; the response is None."""
        outcome = Outcome()
        self.runtime.complete_transaction(
            partition, EndMarker(producer_id, 1, 3, committed, 2), lambda error: outcome(None, error)
        )
        return outcome

    def read(self, partition: int = 0) -> Outcome:
        """A read of everything."""
        outcome = Outcome()
        self.runtime.schedule_read(
            "read", partition, lambda shard, offset: dict(shard.numbers.items_at(offset)), outcome
        )
        return outcome

    def committed(self, partition: int = 0) -> dict[str, int]:
        """Return the state that a read sees."""
        found: dict[str, int] = self.read(partition).response
        return found

    def store(self, *batches: list[Put], partition: int = 0, compression: str = "none", **options: Any) -> None:
        """Put batches into the log without the runtime, committed."""
        for records in batches:
            encoded = [RecordData(0, *JsonSerde().encode(record)) for record in records]
            self.log.put(partition, build_batch(encoded, compression=compression, **options))
        self.log.high_watermark[partition] = self.log.end[partition]


def state_of(records: list[Put]) -> dict[str, int]:
    """Return the state that the log describes."""
    numbers: dict[str, int] = {}
    for key, number in records:
        if number is None:
            numbers.pop(key, None)
        else:
            numbers[key] = number
    return numbers
