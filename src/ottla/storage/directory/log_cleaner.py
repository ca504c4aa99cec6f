"""Cleaner of a directory's logs: selection of the next log, and the course of a pass.

A step (`run_due`) assigns due logs to idle workers: first those with a record that waited longer than
`max.compaction.lag.ms`, then the dirtiest. A pass is an exchange with one worker: it cleans a group of segments, the
log swaps the group in, with the syncs of the swap in the pool, and the worker continues. The checkpoint is updated
after each group, so a pass that ends early resumes from there.

Invariants:
- Before the first group is swapped in, the log has a durable entry in the checkpoint and a recovery point behind the
  cleaned range: together they permit missing offsets.
- A pass ends with its log and with its policy: on truncation, deletion, close, or when the log is no longer compacted.
  Leadership does not matter, since only committed records are cleaned.
- At most one worker reads and writes the files of a log, also after its pass ended early.
- A log that cannot be cleaned is reported, skipped for `RETRY_MS`, and delays no other log.

As Apache Kafka's LogCleaner and LogCleanerManager; there a log that cannot be cleaned is skipped until a restart.

Worker processes are in `worker`, metrics and settings by name in `server`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.errors import KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.clock import BlockingPool, Clock, Rng
from ottla.storage.compaction.worker import CleaningTask, RoundEnd, RoundFailure, Worker, WorkerReport
from ottla.storage.directory.cleanable import (
    CleanableRange,
    cleanable_range,
    first_dirty_offset,
    roll_overdue,
    sources_before,
)
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.log.log import Log

if TYPE_CHECKING:
    from ottla.storage.compaction.cleaning import CleanedGroup

logger = logging.getLogger(__name__)

RETRY_MS = 600_000
"""Time that a log is skipped after a failed pass."""


class CleanerSettings(NamedTuple):
    """Limits of all workers together, except for the load factor."""

    threads: int
    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int
    max_bytes_per_second: float


class Uncleanable(NamedTuple):
    """Reason and end time of a skipped log."""

    reason: str
    retry_ms: int


class PassReport(NamedTuple):
    """A completed pass."""

    ended_ms: int
    seconds: float
    read_bytes: int
    dropped_bytes: int
    written_bytes: int
    map_utilization: float


class _Candidate(NamedTuple):
    log: Log
    range: CleanableRange

    @property
    def urgency(self) -> tuple[bool, float]:
        return self.range.overdue_ms > 0, self.range.dirty_ratio


class LogCleaner:
    """Cleaner of one directory's logs. Owned by the loop."""

    __slots__ = (
        "_clock",
        "_idle",
        "_make_worker",
        "_pool",
        "_rng",
        "_stopped",
        "checkpoint",
        "dead",
        "found",
        "last_run_ms",
        "logs",
        "max_dirty_ratio",
        "max_overdue_ms",
        "passes",
        "reports",
        "settings",
        "uncleanable",
    )

    def __init__(
        self,
        logs: LogManager,
        settings: CleanerSettings,
        make_worker: Callable[[], Worker],
        *,
        pool: BlockingPool,
        clock: Clock,
        rng: Rng,
    ) -> None:
        """`make_worker` is called when another worker is needed; idle workers are reused."""
        self.logs = logs
        self.checkpoint = logs.cleaner_checkpoint
        self.settings = settings
        """May be replaced; running passes continue with the old ones."""
        self._make_worker = make_worker
        self._pool = pool
        self._clock = clock
        self._rng = rng
        self._idle: list[Worker] = []
        self._stopped = False
        self.dead: set[Worker] = set()
        """Idle workers that died in their last pass."""
        self.passes: dict[TopicPartition, CleanerPass] = {}
        self.uncleanable: dict[TopicPartition, Uncleanable] = {}
        self.reports: dict[TopicPartition, PassReport] = {}
        """Last pass of each log."""
        self.found: dict[TopicPartition, CleanableRange] = {}
        """Cleanable range of each compacted log at the last step; for a log in cleaning, at the step before."""
        self.last_run_ms = clock.time_ms()
        self.max_dirty_ratio = 0.0
        """Values over all logs at the last step."""
        self.max_overdue_ms = 0

    def run_due(self) -> None:
        """Assign due logs to idle workers, and end passes over logs that were truncated, closed, or changed policy."""
        if self._stopped:
            return
        for running in self.passes.values():
            running.stop_if_over()
        self._write_checkpoint(_complain)
        if self._free_workers <= 0:
            return
        self.last_run_ms = self._clock.time_ms()
        due = sorted(self._due(self.last_run_ms), key=lambda candidate: candidate.urgency)
        while due and self._free_workers > 0:
            self._begin(due.pop())

    @property
    def _free_workers(self) -> int:
        return self.settings.threads - len(self.passes)

    def stop(self) -> None:
        """End all passes, durably if a swap has begun; afterwards no worker is used. Blocks that long."""
        self._stopped = True
        for running in self.passes.values():
            running.end_early()

    # -- selection of logs ---------------------------------------------------------------------------------------------

    def _due(self, now_ms: int) -> list[_Candidate]:
        due = []
        self.max_dirty_ratio, self.max_overdue_ms = 0.0, 0
        for log in chain.from_iterable(directory.compacted_logs() for directory in self.logs.directories):
            partition = (log.topic, log.partition)
            # A log in cleaning is listed here; one in repair is not. The source of a copy must not change.
            if self.logs.futures.get(partition) is not None:
                continue
            if log.failed or partition in self.passes or log.cleaning is not None:
                continue
            try:
                found = self._range(log, partition, now_ms)
            except (OSError, KafkaError) as error:
                self._give_up(log, str(error))
                continue
            self.found[partition] = found
            self.max_dirty_ratio = max(self.max_dirty_ratio, found.dirty_ratio)
            self.max_overdue_ms = max(self.max_overdue_ms, found.overdue_ms)
            given_up = self.uncleanable.get(partition)
            if (given_up is None or given_up.retry_ms <= now_ms) and found.is_due(log.config.min_cleanable_dirty_ratio):
                due.append(_Candidate(log, found))
        for table in (self.uncleanable, self.reports, self.found):
            for partition in [partition for partition in table if self.logs.get_log(*partition) is None]:
                del table[partition]
        return due

    def _range(self, log: Log, partition: TopicPartition, now_ms: int) -> CleanableRange:
        checkpointed = self.checkpoint.get(partition)
        first_dirty = first_dirty_offset(log, checkpointed)
        if checkpointed is not None:
            self.checkpoint.put(partition, first_dirty)
        roll_overdue(log, now_ms)
        return cleanable_range(log, first_dirty, now_ms)

    # -- a pass --------------------------------------------------------------------------------------------------------

    def _begin(self, candidate: _Candidate) -> None:
        log, partition = candidate.log, (candidate.log.topic, candidate.log.partition)
        worker = self._idle.pop() if self._idle else self._make_worker()
        try:
            task = self._task(log, candidate.range)
            running = CleanerPass(self, log, worker, self._clock.monotonic())
        except (OSError, KafkaError) as error:
            self._idle.append(worker)
            self._give_up(log, str(error))
            return
        self.passes[partition] = running
        log.cleaner_works = True
        self.dead.discard(worker)
        if self.checkpoint.get(partition) is None:
            self.checkpoint.put(partition, candidate.range.first_dirty_offset)
        first = self.logs.before_gaps(partition, candidate.range.end_offset)

        def permitted(error: BaseException | None) -> None:
            if error is not None:
                running.begin(task, error)
            else:
                self._write_checkpoint(lambda error: running.begin(task, error))

        if first is None:
            permitted(None)
        else:
            self.in_pool(first, permitted)

    def _task(self, log: Log, found: CleanableRange) -> CleaningTask:
        from ottla.record.keys import SECRET_BYTES  # imported here, as below: many brokers clean nothing
        from ottla.storage.compaction.cleaning import Round
        from ottla.storage.compaction.retention import LastRecord

        settings, config = self.settings, log.config
        sources, later = sources_before(log, found.end_offset)
        share = max(settings.threads, 1)
        last_records = {
            producer_id: LastRecord(entry.batches[-1][2] if entry.batches else -1, entry.producer_epoch)
            for producer_id, entry in log.producers.entries().items()
        }
        cleaned = Round(
            sources,
            later,
            log.log_start_offset,
            found.first_dirty_offset,
            found.end_offset,
            last_records,
            self._clock.time_ms(),
            config.delete_retention_ms,
            config.segment_bytes,
            config.segment_index_bytes,
            config.index_interval_bytes,
            settings.dedupe_buffer_bytes // share,
            settings.load_factor,
            settings.io_buffer_bytes // share,
            config.max_decompressed_message_bytes,
            self._rng.random_bytes(SECRET_BYTES),
        )
        return CleaningTask(log.directory, cleaned, settings.max_bytes_per_second / share)

    def _write_checkpoint(self, done: Callable[[BaseException | None], None]) -> None:
        due = self.checkpoint.due()
        if due is None:
            done(None)
        else:
            self.in_pool(lambda: self.checkpoint.write(due), done)

    def has_taken_in(self, running: CleanerPass, clean_offset: int) -> None:
        """A group is swapped in durably, or stays unchanged."""
        self.checkpoint.put((running.log.topic, running.log.partition), clean_offset)
        self._write_checkpoint(_complain)

    def has_ended(self, ended: CleanerPass, outcome: RoundEnd | RoundFailure) -> None:
        """Handle the end of a pass: its worker reads and writes no more."""
        log, partition = ended.log, (ended.log.topic, ended.log.partition)
        del self.passes[partition]
        log.cleaner_works = False
        self._idle.append(ended.worker)
        if isinstance(outcome, RoundFailure) and outcome.worker_died:
            self.dead.add(ended.worker)
        if log.cleaning is not ended.cleaning:  # the log was truncated or removed
            return
        try:
            log.end_cleaning()
            log.delete_old_segments(self._clock.time_ms())
        except KafkaError as error:
            outcome = RoundFailure(error.message, lacks_room=False)
        if isinstance(outcome, RoundFailure):
            self._give_up(log, outcome.reason, lacks_room=outcome.lacks_room)
            return
        self.uncleanable.pop(partition, None)
        report = self.reports[partition] = PassReport(
            self._clock.time_ms(),
            self._clock.monotonic() - ended.began_s,
            outcome.read_bytes,
            ended.dropped_bytes,
            ended.written_bytes,
            outcome.map_utilization,
        )
        logger.info(
            "%s is clean up to offset %d: %d bytes read in %.1f s (%.1f MB/s), %d bytes dropped and %d rewritten",
            log.name,
            outcome.end_offset,
            report.read_bytes,
            report.seconds,
            report.read_bytes / 1e6 / max(report.seconds, 1e-3),
            report.dropped_bytes,
            report.written_bytes,
        )
        self.checkpoint.put(partition, outcome.end_offset)
        self._write_checkpoint(self._checkpoint_written)

    def _checkpoint_written(self, error: BaseException | None) -> None:
        _complain(error)
        self.run_due()

    def _give_up(self, log: Log, reason: str, *, lacks_room: bool = False) -> None:
        partition = (log.topic, log.partition)
        if lacks_room:
            logger.warning("%s could not be cleaned for lack of space, retrying: %s", log.name, reason)
            return
        before = self.uncleanable.get(partition)
        self.uncleanable[partition] = Uncleanable(reason, self._clock.time_ms() + RETRY_MS)
        if before is None or before.reason != reason:
            logger.warning(
                "%s can't be cleaned and keeps growing, retrying every %d minutes: %s",
                log.name,
                RETRY_MS // 60_000,
                reason,
            )

    def in_pool(self, work: Callable[[], object], done: Callable[[BaseException | None], None]) -> None:
        """Run blocking work; `done` is called on the loop."""
        self._pool.submit(work, lambda _, error: done(error))


def _complain(error: BaseException | None) -> None:
    if error is not None:
        logger.warning("the cleaner checkpoint can't be written, retrying: %s", error)


class CleanerPass:
    """One log in the work of one worker."""

    __slots__ = (
        "_clean_offset",
        "_cleaner",
        "_is_reported",
        "_outcome",
        "began_s",
        "cleaning",
        "dropped_bytes",
        "log",
        "worker",
        "written_bytes",
    )

    def __init__(self, cleaner: LogCleaner, log: Log, worker: Worker, began_s: float) -> None:
        """Raises KafkaError KAFKA_STORAGE_ERROR."""
        self._cleaner = cleaner
        self._clean_offset = 0
        self._is_reported = False
        self._outcome: RoundFailure | None = None
        self.began_s = began_s
        self.cleaning = log.begin_cleaning()
        self.log = log
        self.worker = worker
        self.dropped_bytes = 0
        self.written_bytes = 0

    def begin(self, task: CleaningTask, error: BaseException | None) -> None:
        """The checkpoint entry of the log is durable, unless there is an error."""
        if error is not None or self.cleaning.is_over:
            reason = f"the checkpoint can't be written: {error}"
            self._cleaner.has_ended(self, RoundFailure(reason, lacks_room=True))
            return
        self._is_reported = True
        self.worker.begin(task, self._receive)

    def stop_if_over(self) -> None:
        """Stop the worker early if the log was truncated or closed, or is no longer compacted."""
        if not self.cleaning.is_over and not self.log.config.compacted:
            self._end_cleaning()
        if self.cleaning.is_over and self._is_reported:
            self.worker.stop()

    def end_early(self) -> None:
        """Stop for the shutdown of the broker."""
        self._end_cleaning()
        self.stop_if_over()

    def _end_cleaning(self) -> None:
        try:
            self.log.end_cleaning()
        except KafkaError as error:
            logger.error("%s", error)

    def _receive(self, outcome: WorkerReport) -> None:
        if isinstance(outcome, RoundEnd | RoundFailure):
            self._is_reported = False
            self._cleaner.has_ended(self, self._outcome or outcome)
        else:
            self._take_in(outcome)

    def _take_in(self, group: CleanedGroup) -> None:
        self.stop_if_over()
        if self.cleaning.is_over:
            return
        self._clean_offset = group.clean_offset
        if not group.outputs:
            self._has_taken_in()
        else:
            self.written_bytes += group.output_bytes
            self.dropped_bytes += sum(source.size_bytes for source in group.sources) - group.output_bytes
            cleaning = self.cleaning
            self._step(lambda: cleaning.stage(group), lambda: self._step(cleaning.take_in, self._settle))

    def _settle(self) -> None:
        if self._survives(self.cleaning.settle):
            self._has_taken_in()

    def _has_taken_in(self) -> None:
        self._cleaner.has_taken_in(self, self._clean_offset)
        self.worker.resume()

    def _step(self, act: Callable[[], None], then: Callable[[], None]) -> None:
        """Run `act` on the loop, sync its directory entries in the pool, and continue with `then`."""

        def synced(error: BaseException | None) -> None:
            if error is not None and not isinstance(error, OSError):
                raise error
            if error is not None:
                self._fail(f"a sync of the directory failed: {error}")
            else:
                then()

        if self._survives(act):
            self._cleaner.in_pool(self.cleaning.sync, synced)

    def _survives(self, act: Callable[[], None]) -> bool:
        self.stop_if_over()
        if self.cleaning.is_over:
            return False
        try:
            act()
        except KafkaError as error:
            self._fail(error.message)
            return False
        return True

    def _fail(self, reason: str) -> None:
        self._outcome = RoundFailure(reason, lacks_room=False)
        self.worker.stop()
