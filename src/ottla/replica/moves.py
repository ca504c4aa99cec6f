"""Moves of this broker's replicas from one data directory to another (KIP-113, KIP-858).

A copy is filled from the log piece by piece, at most at `replica.alter.log.dirs.io.max.bytes.per.second`, independent
of leadership and of appends meanwhile. Once it has caught up and is durable, the controller gets the replica's new
directory (AssignReplicasToDirs). When the metadata has it, the copy replaces the log, in a tick in which both have the
same end. A move that is cancelled, or fails with its directory, reverts the assignment. A start resumes the copies that
it finds.

One piece of one move is read at a time, in the pool; moves take turns. Copies on the loop itself are bounded by
`CHUNK_BYTES`.

Invariants:
- A copy is a prefix of the log: after a truncation of the log both are compared by leader epochs before any append.
- Durable records of the log are durable in the copy before the swap.
- A damaged log is not copied; after its repair from other replicas the copy restarts.

Files, names and the steps of the swap are in `storage.directory.future_logs`; requests for moves are in `server`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar, cast

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.common.platform.clock import BlockingPool, Scheduler, TimerHandle
from ottla.replica.partition import Partition
from ottla.replica.throttle import ReplicationQuota
from ottla.replica.truncation import truncation_offset
from ottla.storage.directory.future_logs import FutureLogs
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.off_loop import Known, WouldBlock, run_off_loop
from ottla.storage.log.log import Log
from ottla.storage.segment.data import SegmentRegion
from ottla.storage.segment.results import ReadResult

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1024 * 1024
"""Size of one read."""
POLL_S = 0.1
"""Poll interval for conditions without an event: a throttle, a repair."""
REPORT_AGAIN_S = 2.0
"""Delay before the directory of a copy is reported again, while the metadata does not have it."""
RETRY_S = 30.0
"""Backoff of a move after an error."""

MAX_UNSYNCED_BYTES = 8 * CHUNK_BYTES
"""Maximum bytes copied after the last fsync of a copy that can still be synced in the tick of the swap."""

Key = tuple[bytes, int]
T = TypeVar("T")


class MovesContext(NamedTuple):
    """Broker services that moves need."""

    logs: LogManager
    pool: BlockingPool
    scheduler: Scheduler
    monotonic: Callable[[], float]
    quota: ReplicationQuota
    """Throttle of copies (`replica.alter.log.dirs.io.max.bytes.per.second`)."""
    held: Callable[[Partition], bool]
    """Whether the log is damaged or about to be scanned."""
    known_directory: Callable[[Partition], Uuid | None]
    """Directory of the replica in the metadata; None if the metadata does not contain directories."""
    report: Callable[[Partition, Uuid], None]
    """Reports the directory of the replica to the controller."""


class _Move:
    __slots__ = (
        "copy",
        "cut_count",
        "directory",
        "due_s",
        "failure",
        "partition",
        "prepared",
        "reported_s",
        "unsynced_bytes",
    )

    def __init__(self, partition: Partition, copy: Log, directory: LogDirectory) -> None:
        self.partition = partition
        self.copy = copy
        self.directory = directory
        self.cut_count = -1
        """Truncation count of the log when the copy was compared with it."""
        self.due_s = 0.0
        self.failure = ""
        self.prepared = False
        self.unsynced_bytes = 0
        """Bytes copied since the copy was made durable."""
        self.reported_s: float | None = None

    @property
    def key(self) -> Key:
        return self.partition.topic_id, self.partition.index

    @property
    def log_key(self) -> tuple[str, int]:
        return self.partition.topic, self.partition.index


class ReplicaMoves:
    """Moves of one broker. Owned by the loop."""

    __slots__ = ("_at_work", "_context", "_futures", "_moves", "_queue", "_stopped", "_timer")

    def __init__(self, context: MovesContext) -> None:
        self._context = context
        self._futures: FutureLogs = context.logs.futures
        self._moves: dict[Key, _Move] = {}
        self._queue: deque[_Move] = deque()
        self._at_work = False
        """Whether the pool works for a move."""
        self._timer: TimerHandle | None = None
        self._stopped = False

    # -- requests ------------------------------------------------------------------------------------------------------

    def begin(self, partition: Partition, directory: LogDirectory) -> None:
        """Move the replica to `directory`, or leave it there; a move elsewhere is cancelled. Raises KafkaError.

        KAFKA_STORAGE_ERROR if the copy cannot be created.
        """
        move = self._moves.get((partition.topic_id, partition.index))
        if move is not None and move.directory is directory:
            return
        if move is not None:
            self.cancel(move.key)
        key = (partition.topic, partition.index)
        if key in directory.logs:
            return
        if self._context.logs.offline_directories:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition.log.name} can't be moved while a data directory is offline, which may hold a copy of it",
            )
        copy = self._futures.create(directory, key, partition.topic_id, partition.log.config)
        logger.info("moving %s from %s to %s", partition.log.name, partition.log.directory, directory.path)
        self._add(partition, copy, directory)

    def resume(self, partition: Partition) -> None:
        """Continue the move of a newly opened partition if a copy of it was found."""
        key = (partition.topic, partition.index)
        directory = self._futures.directory_of(key)
        if directory is None or (partition.topic_id, partition.index) in self._moves:
            return
        if key in directory.logs:  # the log was recreated there
            self._remove_copy(key)
        else:
            self._add(partition, directory.futures[key], directory)

    def _add(self, partition: Partition, copy: Log, directory: LogDirectory) -> None:
        move = _Move(partition, copy, directory)
        try:
            partition.log.end_cleaning()
        except KafkaError as error:
            logger.error("%s", error)
        self._moves[move.key] = move
        self._queue.append(move)
        self._schedule()

    def cancel(self, key: Key) -> None:
        """Cancel: the replica stays in its directory."""
        move = self._drop(key)
        if move is not None:
            logger.info("move cancelled: %s stays in %s", move.partition.log.name, move.partition.log.directory)
            self._remove_copy(move.log_key)
            self._take_back(move)

    def _remove_copy(self, key: tuple[str, int]) -> None:
        try:
            self._futures.remove(key)
        except KafkaError as error:
            logger.error("%s", error)

    def _take_back(self, move: _Move) -> None:
        """Whether the controller may count on the new directory."""
        here = self._context.logs.directory_of(move.log_key)
        if move.reported_s is not None and here is not None:
            self._context.report(move.partition, here.directory_id)

    def forget(self, key: Key) -> None:
        """Drop the move with the replica; its copy is removed with its log."""
        self._drop(key)

    def _drop(self, key: Key) -> _Move | None:
        move = self._moves.pop(key, None)
        if move is not None:
            self._queue.remove(move)
        return move

    def directory_failed(self, directory: LogDirectory) -> None:
        """End moves from and to a failed directory; they resume once it is back. Call before its logs are closed."""
        for move in list(self._moves.values()):
            if directory is move.directory or move.log_key in directory.logs:
                self._drop(move.key)
                self._take_back(move)
                self._futures.release(move.log_key)

    def wake(self, key: Key) -> None:
        """Check the move after a metadata change of its partition."""
        move = self._moves.get(key)
        if move is not None and not move.failure:
            move.due_s = 0.0
            self._schedule()

    def stop(self) -> None:
        """Stop copying: the next start resumes."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- progress ------------------------------------------------------------------------------------------------------

    def copies(self) -> Iterator[tuple[Partition, Log]]:
        """Return the moving partitions and their progress."""
        return iter([(move.partition, move.copy) for move in self._moves.values()])

    def max_lag(self) -> int:
        """Maximum lag of a copy behind its log, in records."""
        return max(
            (max(partition.log.log_end_offset - copy.log_end_offset, 0) for partition, copy in self.copies()),
            default=0,
        )

    def failed_count(self) -> int:
        """Number of moves that wait after an error."""
        return sum(1 for move in self._moves.values() if move.failure)

    # -- turns ---------------------------------------------------------------------------------------------------------

    def _schedule(self, delay_s: float = 0.0) -> None:
        if self._at_work or self._stopped or not self._moves:
            return
        if self._timer is not None:
            if delay_s > 0.0:
                return
            self._timer.cancel()
        self._timer = self._context.scheduler.call_later(delay_s, self._turn)

    def _turn(self) -> None:
        """Run the first move that has work."""
        self._timer = None
        now_s = self._context.monotonic()
        quota = self._context.quota
        if quota.limited and quota.exceeded(now_s):
            self._schedule(POLL_S)
            return
        for _ in range(len(self._queue)):
            move = self._queue[0]
            self._queue.rotate(-1)
            if move.due_s <= now_s:
                self._guarded(move, partial(self._step, move))
                if self._at_work:
                    return
        rest_s = [max(move.due_s - now_s, 0.0) for move in self._queue]
        self._schedule(min(rest_s, default=POLL_S))

    def _in_pool(
        self, move: _Move, work: Callable[[], T], then: Callable[[T], None], release: Callable[[], None] | None = None
    ) -> None:
        """Call `then` with the outcome unless the move is over by then; `release` runs first in any case."""

        def done(result: T | None, error: BaseException | None) -> None:
            self._at_work = False
            if release is not None:
                release()
            if error is not None and not isinstance(error, OSError | KafkaError):
                raise error
            if self._is_current(move):
                if error is not None:
                    self._fail(move, str(error))
                else:
                    self._guarded(move, lambda: then(cast("T", result)))
            self._schedule()

        self._at_work = True
        self._context.pool.submit(work, done)

    def _is_current(self, move: _Move) -> bool:
        return not self._stopped and self._moves.get(move.key) is move

    def _guarded(self, move: _Move, act: Callable[[], None]) -> None:
        try:
            act()
        except (KafkaError, OSError) as error:
            self._fail(move, str(error))

    def _fail(self, move: _Move, reason: str) -> None:
        name = move.partition.log.name
        if move.directory.health.offline is not None:
            logger.error("%s can't be moved to %s, which is offline: %s", name, move.directory.path, reason)
            self._drop(move.key)
            self._take_back(move)
            self._futures.release(move.log_key)
            return
        if reason != move.failure:
            logger.error("the move of %s to %s is retried later: %s", name, move.directory.path, reason)
        move.failure = reason
        move.cut_count = -1
        move.due_s = self._context.monotonic() + RETRY_S

    # -- one move ------------------------------------------------------------------------------------------------------

    def _step(self, move: _Move) -> None:
        partition, copy = move.partition, move.copy
        if self._context.held(partition):
            if copy.log_end_offset > copy.log_start_offset:
                copy.truncate_fully_and_start_at(partition.log.log_start_offset)
            move.due_s = self._context.monotonic() + POLL_S
            return
        if partition.offline or partition.log.failed or copy.failed:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "the log or its future log failed after a disk error; check the disk, then restart the broker",
            )
        if move.cut_count != partition.cut_count:
            self._compare(move)
        self._follow(move)
        if copy.log_end_offset < partition.log.log_end_offset:
            self._read(move, {})
        else:
            self._caught_up(move)

    def _compare(self, move: _Move) -> None:
        """Truncate the copy where it diverges from the log."""
        log, copy = move.partition.log, move.copy
        if copy.log_start_offset > log.log_start_offset:
            copy.truncate_fully_and_start_at(log.log_start_offset)
        while copy.log_end_offset > copy.log_start_offset:
            if copy.leader_epoch < 0:  # old formats contain no epochs
                offset = copy.log_start_offset
            elif copy.leader_epoch > log.leader_epoch:
                offset = next(first for epoch, first in copy.epochs.entries() if epoch > log.leader_epoch)
            else:
                found = log.epoch_end_offset(copy.leader_epoch)
                own = copy.epoch_end_offset(found[0])
                offset = truncation_offset(found, own, copy.log_end_offset, copy.log_end_offset)
            if offset >= copy.log_end_offset:
                break
            copy.truncate_to(max(offset, copy.log_start_offset))
        move.cut_count = move.partition.cut_count

    def _follow(self, move: _Move) -> None:
        """Copy the other offsets of the log, as far as the copy reaches."""
        log, copy = move.partition.log, move.copy
        start = log.log_start_offset
        is_empty = copy.log_end_offset == copy.log_start_offset
        if copy.log_end_offset < start or (is_empty and copy.log_start_offset != start):
            copy.truncate_fully_and_start_at(start)
        copy.maybe_increment_log_start_offset(start)
        copy.offsets.begin_high_watermark(log.high_watermark)
        copy.last_stable_offset(copy.high_watermark)  # this drops transaction state below the last stable offset

    # -- copying -------------------------------------------------------------------------------------------------------

    def _read(self, move: _Move, known: Known) -> None:
        """Find the next piece, in the pool if its position is not in memory, and let the pool read it."""
        partition, copy = move.partition, move.copy
        log, cut_count = partition.log, partition.cut_count
        try:
            found = log.read(copy.log_end_offset, CHUNK_BYTES, max_offset=log.log_end_offset, known=known)
        except WouldBlock as needed:
            self._at_work = True

            def looked() -> None:
                self._at_work = False
                if self._is_current(move):
                    self._guarded(move, lambda: self._read(move, known))
                self._schedule()

            run_off_loop([needed], known, self._context.pool, looked)
            return
        region, end_offset = _bytes_of(found), log.log_end_offset

        def copied(data: bytes) -> None:
            if cut_count == partition.cut_count:
                self._append(move, data)
                if copy.log_end_offset >= end_offset:
                    self._finish_on_loop(move)

        self._in_pool(move, region.read_all, copied, region.release)

    def _finish_on_loop(self, move: _Move) -> None:
        """Copy the records appended during the last read: few, and in the page cache."""
        log, copy = move.partition.log, move.copy
        left = CHUNK_BYTES
        while left > 0 and copy.log_end_offset < log.log_end_offset:
            region = _bytes_of(log.read(copy.log_end_offset, left, max_offset=log.log_end_offset))
            try:
                data = region.read_all()
            finally:
                region.release()
            self._append(move, data)
            left -= len(data)
        if copy.log_end_offset == log.log_end_offset:
            self._caught_up(move)

    def _append(self, move: _Move, data: bytes) -> None:
        copy = move.copy
        before = copy.log_end_offset
        first = int.from_bytes(data[:8], "big", signed=True)
        if first < before == copy.log_start_offset:
            copy.truncate_fully_and_start_at(first)  # the log starts within this batch, which is copied whole
        copy.append_as_follower(data, 0, len(data))
        if copy.log_end_offset <= before:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no whole batch is found at {before}")
        self._context.quota.record(len(data), self._context.monotonic())
        move.unsynced_bytes += len(data)
        move.failure = ""

    # -- swapping ------------------------------------------------------------------------------------------------------

    def _caught_up(self, move: _Move) -> None:
        """Swap: log and copy have the same end in this tick."""
        if not move.prepared or move.unsynced_bytes > MAX_UNSYNCED_BYTES:
            self._prepare(move)
            return
        partition, context = move.partition, self._context
        known, there = context.known_directory(partition), move.directory.directory_id
        now_s = context.monotonic()
        if known is not None and known != there:
            if move.reported_s is None or now_s - move.reported_s >= REPORT_AGAIN_S:
                move.reported_s = now_s
                context.report(partition, there)
            move.due_s = now_s + REPORT_AGAIN_S
        elif move.copy.is_flushing:
            move.due_s = now_s + POLL_S
        else:
            self._swap(move)

    def _source(self, move: _Move) -> LogDirectory:
        source = self._context.logs.directory_of(move.log_key)
        if source is None:
            raise InvariantError(f"{move.partition} has no log")
        return source

    def _prepare(self, move: _Move) -> None:
        """Make the copy durable, together with the state that a start needs."""

        def prepared(_: None) -> None:
            move.prepared = True

        def flushed(error: BaseException | None) -> None:
            self._at_work = False
            if self._is_current(move):
                if error is not None:
                    self._fail(move, str(error))
                else:
                    move.unsynced_bytes = 0
                    self._in_pool(move, self._futures.preparation(move.log_key, self._source(move)), prepared)
            self._schedule()

        self._at_work = True
        move.copy.request_flush(self._context.pool, flushed)

    def _swap(self, move: _Move) -> None:
        partition, copy, source, context = move.partition, move.copy, self._source(move), self._context
        self._follow(move)
        if partition.log.flushed_offset > copy.flushed_offset:
            copy.flush()
        durable = self._futures.take_place(move.log_key, source)
        self._drop(move.key)
        partition.replace_log(copy)
        if not durable:
            partition.mark_offline()
            return
        logger.info("%s was moved from %s to %s", copy.name, source.path, move.directory.path)
        if move.reported_s is None and context.known_directory(partition) is not None:
            # The metadata has that directory from an earlier move, and may still record that this one did not complete.
            context.report(partition, move.directory.directory_id)
        context.pool.submit(self._futures.conclusion(copy, source), _conclude)


def _conclude(_: None, error: BaseException | None) -> None:
    """Leave a remaining note to the next start, which handles it."""
    if isinstance(error, OSError):
        logger.warning("the next start completes a move: %s", error)
    elif error is not None:
        raise error


def _bytes_of(found: ReadResult) -> SegmentRegion:
    """Region of a log at an offset before its end. Raises KafkaError CORRUPT_MESSAGE."""
    if found.records is None:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch is found at offset {found.offset}")
    return found.records
