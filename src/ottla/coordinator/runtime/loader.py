"""Loads shards from their logs, a slice at a time.

Partitions are loaded one after the other, in the order in which this broker became their leader. A slice replays for at
most SLICE_S and then yields to the loop; files are read off the loop. So other requests, including those to loaded
shards, never wait longer than one slice, however many offsets the topic contains.

Invariants: a shard is ACTIVE only after every record up to the log end was replayed; snapshots are taken only from the
high watermark on. A failed load leaves the shard FAILED and is retried with exponential backoff.

Records of unknown types or with undecodable keys are skipped, as in Apache Kafka. For an undecodable value, the serde
chooses the record to replay (`CoordinatorSerde.without_value`). Records of a transaction are replayed as pending, and
then its marker, even if the high watermark is between them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Any

from ottla.common.control_chars import escape_control_chars
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import TimerHandle
from ottla.common.platform.disk import Buffer
from ottla.coordinator.runtime.context import CoordinatorContext, RuntimeParts
from ottla.coordinator.runtime.records import CoordinatorSerde
from ottla.coordinator.runtime.slices import SLICE_S
from ottla.coordinator.runtime.state import CoordinatorState
from ottla.record.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, BatchView, Record
from ottla.record.control import ControlRecordType, control_record_type
from ottla.record.errors import CorruptBatch
from ottla.record.legacy.stored import iter_any_batches

logger = logging.getLogger(__name__)

RECORDS_PER_CLOCK_READ = 16
"""Records replayed between two reads of the clock."""

RECORDS_PER_PART = 4096
"""Maximum number of decoded records of one batch at a time: clients may write a batch of millions of empty records."""

LOGGED_PER_LOAD = 10
"""Maximum number of skipped records that are logged individually: there may be millions, and logging is slower than
replay."""

MAX_REASON_CHARS = 300
"""Maximum length of the logged reason: it may contain an id of 32 kilobytes."""

READ_BYTES = 1024 * 1024
"""Bytes that one file read requests."""

_GONE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""Leadership has moved or the topic was deleted: no warning, since the runtime is about to be notified."""

LARGE_LOAD_RECORDS = 20_000
"""Loads of this size or more call `after_large_load`, which may freeze the garbage collector's generations."""

RETRY_BACKOFF_S = 1.0
MAX_RETRY_BACKOFF_S = 60.0

_NO_PRODUCER = NO_PRODUCER_ID, NO_PRODUCER_EPOCH

Context = CoordinatorContext[Any]


def _without_value(serde: CoordinatorSerde[Any], key: bytes) -> Any:
    """Return the record to replay for a key without its value; None if the key can't be decoded either."""
    try:
        return serde.without_value(key)
    except Exception:
        return None


class _LoadAttempt:
    """One attempt to load one partition."""

    __slots__ = ("attempt", "bytes", "context", "next_offset", "records", "skipped", "started_s")

    def __init__(self, context: Context, attempt: int) -> None:
        self.context = context
        self.attempt = attempt
        self.next_offset = 0
        self.started_s = 0.0
        self.records = 0
        self.skipped = 0
        self.bytes = 0

    @property
    def wanted(self) -> bool:
        """Whether the partition still waits for this load."""
        return self.context.state is CoordinatorState.LOADING


class Loader:
    """The load queue of one runtime. Owns the order; the shard's state belongs to its context."""

    __slots__ = ("_current", "_parts", "_queue", "_retries")

    def __init__(self, parts: RuntimeParts) -> None:
        self._parts = parts
        self._queue: deque[_LoadAttempt] = deque()
        self._current: _LoadAttempt | None = None
        self._retries: dict[Context, TimerHandle] = {}

    def load(self, context: Context) -> None:
        """Load `context`, which is in state INITIAL or FAILED; it is LOADING from now on."""
        self._enqueue(context, 0)

    def stop(self) -> None:
        """Cancel retries; running loads end when their contexts close."""
        for handle in self._retries.values():
            handle.cancel()
        self._retries.clear()

    def forget(self, context: Context) -> None:
        """Cancel the retry of a closed context."""
        handle = self._retries.pop(context, None)
        if handle is not None:
            handle.cancel()

    # --- internals ----------------------------------------------------------------------------------------------------

    def _enqueue(self, context: Context, attempt: int) -> None:
        self._retries.pop(context, None)
        context.start_loading()
        self._queue.append(_LoadAttempt(context, attempt))
        if self._current is None:
            self._next()

    def _next(self) -> None:
        """Start the first load in the queue that is still required."""
        self._current = None
        while self._queue:
            load = self._queue.popleft()
            if load.wanted:
                self._current = load
                # Not in the caller's tick: 50 empty partitions must not nest.
                self._parts.scheduler.call_soon(self._begin, load)
                return

    def _begin(self, load: _LoadAttempt) -> None:
        if not load.wanted:
            self._next()
            return
        load.started_s = self._parts.clock.monotonic()
        try:
            self._parts.prepare(lambda: self._prepared(load))
        except Exception as error:
            self._failed(load, error)

    def _prepared(self, load: _LoadAttempt) -> None:
        if not load.wanted:
            self._next()
            return
        try:
            load.next_offset = self._parts.log.offsets(load.context.partition).log_start_offset
            self._read_on(load)
        except Exception as error:
            self._failed(load, error)

    def _read_on(self, load: _LoadAttempt) -> None:
        """Read the batches from `load.next_offset` on, or finish at the end of the log."""
        partition = load.context.partition
        offsets = self._parts.log.offsets(partition)
        if load.next_offset >= offsets.log_end_offset:
            self._finish(load, offsets.high_watermark)
            return

        def done(records: Buffer | None, error: KafkaError | None) -> None:
            if not load.wanted:
                self._next()
            elif error is not None or records is None:
                self._failed(load, error or InvariantError("a read ended without records and without error"))
            else:
                self._slice(load, self._replay(load, records, offsets.high_watermark, offsets.log_end_offset))

        self._parts.log.read(partition, load.next_offset, READ_BYTES, done)

    def _slice(self, load: _LoadAttempt, replay: Iterator[None]) -> None:
        """Replay for one slice; the rest follows in a later tick."""
        if not load.wanted:
            self._next()
            return
        # A defect in one partition must not stop the broker's start: even a broken invariant only fails this load.
        try:
            for _ in replay:
                self._parts.scheduler.call_soon(self._slice, load, replay)
                return
            self._read_on(load)
        except Exception as error:
            self._failed(load, error)

    def _replay(self, load: _LoadAttempt, buffer: Buffer, high_watermark: int, end_offset: int) -> Iterator[None]:
        """Replay the complete batches of `buffer`; yields whenever a slice is over.

        High watermark and log end were read before `buffer`.
        """
        monotonic = self._parts.clock.monotonic
        deadline_s = monotonic() + SLICE_S
        start = load.next_offset
        if not len(buffer):
            # The cleaner removed the last batches, e.g. old tombstones: the end of the log is a gap.
            load.next_offset = end_offset
            return
        for batch in iter_any_batches(buffer):
            if batch.next_offset <= load.next_offset:
                continue
            if not batch.crc_matches():
                raise CorruptBatch(f"the checksum at offset {batch.base_offset} does not match")
            if batch.next_offset > high_watermark:
                load.context.registry.snapshot(load.next_offset)
            if batch.is_control:
                self._replay_marker(load, batch)
            else:
                for _ in self._replay_batch(load, batch):
                    if monotonic() >= deadline_s:
                        yield
                        deadline_s = monotonic() + SLICE_S
            load.next_offset = batch.next_offset
            load.bytes += batch.size_bytes
        if load.next_offset == start:
            raise CorruptBatch(f"the read at offset {start} returned no complete batch")

    def _replay_batch(self, load: _LoadAttempt, batch: BatchView) -> Iterator[None]:
        """Replay the records of one batch; yields every RECORDS_PER_CLOCK_READ records and at the end.

        Clients may write to the topic. Undecodable records are skipped, as in Apache Kafka: they would otherwise block
        the partition permanently.
        """
        next_offset = max(batch.base_offset, load.next_offset)
        # Without the transactional flag no marker follows, so the records would stay pending for ever.
        producer = batch.producer_id, batch.producer_epoch
        producer_id, producer_epoch = producer if batch.is_transactional else _NO_PRODUCER
        parts = batch.records_in_parts(RECORDS_PER_PART)
        while True:
            try:
                part = list(next(parts, ()))
            except KafkaError as error:
                self._skip(load, f"offsets {next_offset} to {batch.last_offset}", error)
                break
            if not part:
                break
            for index, record in enumerate(part, 1):
                if record.offset >= next_offset:
                    try:
                        self._replay_record(load, record, producer_id, producer_epoch)
                    except Exception as error:
                        self._skip(load, f"offset {record.offset}", error)
                    load.records += 1
                if index % RECORDS_PER_CLOCK_READ == 0:
                    yield
            next_offset = max(next_offset, part[-1].offset + 1)
        yield

    def _replay_record(self, load: _LoadAttempt, record: Record, producer_id: int, producer_epoch: int) -> None:
        serde = self._parts.serde()
        if record.key is None:
            raise CorruptBatch("the record has no key")
        try:
            decoded = serde.decode(record.key, record.value)
        except KafkaError as error:
            self._skip(load, f"offset {record.offset}", error)
            decoded = _without_value(serde, record.key)
        if decoded is not None:
            load.context.shard.replay(record.offset, decoded, producer_id, producer_epoch)

    def _skip(self, load: _LoadAttempt, place: str, error: Exception) -> None:
        """Count a skipped record. The first ones of a load are logged, and their total at its end."""
        self._parts.statistics.records_skipped += 1
        load.skipped += 1
        if load.skipped > LOGGED_PER_LOAD:
            return
        reason = str(error) if isinstance(error, KafkaError) else f"{type(error).__name__}: {error}"
        logger.error(
            "%s-%d: skipping the unreadable record at %s: %s",
            self._parts.name,
            load.context.partition,
            place,
            escape_control_chars(reason[:MAX_REASON_CHARS]),
            extra=RATE_LIMITED,
        )

    def _replay_marker(self, load: _LoadAttempt, batch: BatchView) -> None:
        """Replay the end of a transaction; other control records do not affect shards."""
        try:
            for record in next(batch.records_in_parts(RECORDS_PER_PART)):
                kind = control_record_type(record)
                if record.offset >= load.next_offset and kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                    committed = kind is ControlRecordType.COMMIT
                    load.context.shard.replay_end_transaction_marker(
                        batch.producer_id, batch.producer_epoch, committed=committed
                    )
                load.records += 1
        except Exception as error:
            self._skip(load, f"offset {batch.base_offset}", error)

    def _finish(self, load: _LoadAttempt, high_watermark: int) -> None:
        load.context.finish_loading(load.next_offset, high_watermark)
        elapsed_ms = (self._parts.clock.monotonic() - load.started_s) * 1000
        statistics = self._parts.statistics
        statistics.loads += 1
        statistics.records_loaded += load.records
        statistics.load_time_total_ms += elapsed_ms
        statistics.load_time_max_ms = max(statistics.load_time_max_ms, elapsed_ms)
        logger.log(
            logging.INFO if load.records else logging.DEBUG,
            "%s-%d loaded in leader epoch %d: %d records, %d bytes, %.0f ms",
            self._parts.name,
            load.context.partition,
            load.context.leader_epoch,
            load.records,
            load.bytes,
            elapsed_ms,
        )
        if load.skipped > LOGGED_PER_LOAD:
            logger.error(
                "%s-%d: skipped %d unreadable records; run ottla log dump --records to list them",
                self._parts.name,
                load.context.partition,
                load.skipped,
                extra=RATE_LIMITED,
            )
        if load.records >= LARGE_LOAD_RECORDS:
            self._parts.after_large_load()
        self._next()

    def _failed(self, load: _LoadAttempt, error: Exception) -> None:
        context = load.context
        self._parts.statistics.load_failures += 1
        backoff_s = min(RETRY_BACKOFF_S * 2**load.attempt, MAX_RETRY_BACKOFF_S)
        if not isinstance(error, KafkaError):
            self._parts.failures(
                f"{self._parts.name}-{context.partition}: loading, at offset {load.next_offset}", error
            )
        elif error.code not in _GONE:
            logger.warning(
                "%s-%d: load failed at offset %d, retrying in %.0f s: %s",
                self._parts.name,
                context.partition,
                load.next_offset,
                backoff_s,
                error,
                extra=RATE_LIMITED,
            )
        context.fail()
        self._retries[context] = self._parts.scheduler.call_later(backoff_s, self._enqueue, context, load.attempt + 1)
        self._next()
