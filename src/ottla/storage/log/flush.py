"""Flushing of a log: the syncs that must precede its durable offsets, and group commit of waiting requests.

A `FlushTask` is created on the loop, its `run` blocks and belongs in a pool, its `finish` runs on the loop again.
`LogFlush` tracks the volatile part of one log, and creates the tasks. `Flusher` is the group commit: requests that
arrive during a flush share the next one.

Invariants:
- The flushed offset advances only after the data below it and all names in the directory are durable: then a start
  finds the data. The recovery point, from which a start scans the log, advances only after indexes of complete segments
  and leader epochs are durable too. A full disk may prevent that: then it stays, and another flush retries.
- One flush of a log runs at a time, so offsets become durable in order.
- A failed sync is final: the kernel may have dropped the pages, so the log accepts no more appends.

Flushes are triggered elsewhere (`flush.messages`: append result; `flush.ms` and rolls: log manager).
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Callable, Sequence

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.platform.clock import BlockingPool, Clock
from ottla.common.platform.disk import Disk, File
from ottla.storage.files.checkpoints import format_epochs
from ottla.storage.files.descriptors import Descriptor, Folder
from ottla.storage.files.epochs import LeaderEpochCache
from ottla.storage.files.names import LEADER_EPOCH_CHECKPOINT
from ottla.storage.log.log_segments import LogOffsets, LogSegments
from ottla.storage.log.producer_files import snapshot_is_due, write_producers
from ottla.storage.log.producer_state import ProducerState
from ottla.storage.segment.health import TRANSIENT_ERRORS, LogHealth
from ottla.storage.segment.segment import Segment

FlushDone = Callable[[BaseException | None], None]


class FlushTask:
    """Files that one flush syncs; pins each of them."""

    __slots__ = (
        "_closing",
        "_disk",
        "_epochs_file",
        "_epochs_lock",
        "_files",
        "_finished",
        "_folder",
        "_holder",
        "_loose_paths",
        "_pinned",
        "end_offset",
        "refused",
    )

    def __init__(
        self,
        disk: Disk,
        segments: Sequence[Segment],
        end_offset: int,
        finished: FlushFinished,
        *,
        data: bool,
        closing: bool,
        epochs_file: tuple[str, bytes] | None,
        loose_paths: Sequence[str],
        folder: str | None,
        holder: str | None,
    ) -> None:
        """Create a flush up to `end_offset`, the log end; `segments` are all that reach beyond the recovery point.

        `data`: they contain volatile records. `closing`: the indexes of the last one count too, and a full disk is a
        failure. `loose_paths` are files written without an open descriptor; `folder` is synced if given. `epochs_file`
        is written, as (path, content), into that folder; `holder` is the directory with its name, synced if given.
        `finished` is called with the outcome. Raises OSError.
        """
        self._disk = disk
        self._finished = finished
        self._closing = closing
        self._files: list[File] = []
        self._pinned: list[Descriptor] = []
        self._epochs_file = epochs_file
        self._epochs_lock = None if epochs_file is None else threading.Lock()
        self._loose_paths = loose_paths
        self._folder = folder
        self._holder = holder
        self.end_offset = end_offset
        self.refused: OSError | None = None
        """Error of a full disk that only prevents a new recovery point."""
        try:
            self._take_files(segments, data=data)
        except OSError:
            self._unpin()
            raise

    def _take_files(self, segments: Sequence[Segment], *, data: bool) -> None:
        indexed = []
        for segment in segments:
            if data:
                self._pin(segment.data.to_sync())
            if self._closing or segment is not segments[-1]:
                try:
                    files = segment.indexes.to_sync()
                except OSError as error:
                    self._refuse(error)
                else:
                    self._pin(files)
                    indexed.append(segment)
        for segment in indexed:
            segment.indexes.synced()

    def _pin(self, descriptors: list[Descriptor]) -> None:
        for descriptor in descriptors:
            self._files.append(descriptor.pin())
            self._pinned.append(descriptor)

    def _refuse(self, error: OSError) -> None:
        """Continue if only the recovery point is affected and the disk is only full."""
        if self._closing or error.errno not in TRANSIENT_ERRORS:
            raise error
        self.refused = error

    def run(self) -> None:
        """Sync; blocks. Raises OSError."""
        for file in self._files:
            file.fsync()
        for path in self._loose_paths:
            try:
                loose = self._disk.open(path, read_only=True)
            except FileNotFoundError:  # deleted since, with its segment
                continue
            try:
                loose.fsync()
            finally:
                loose.close()
        if not self._write_epochs() and self._folder is not None:
            self._disk.fsync_dir(self._folder)
        if self._holder is not None:
            self._disk.fsync_dir(self._holder)

    def _write_epochs(self) -> bool:
        """Write the file of leader epochs and sync the folder with it; returns whether. Raises OSError."""
        if self._epochs_lock is None:
            return False
        with self._epochs_lock:
            if self._epochs_file is None:
                return False
            try:
                self._disk.write_atomic(*self._epochs_file)
            except OSError as error:
                self._refuse(error)
                return False
            return True

    def replace_epochs(self, path: str, data: bytes) -> None:
        """Write newer leader epochs instead of those of this flush; waits for a running write. Raises OSError."""
        if self._epochs_lock is None:
            self._disk.write_atomic(path, data)
            return
        with self._epochs_lock:
            self._disk.write_atomic(path, data)
            self._epochs_file = None

    def finish(self, error: BaseException | None) -> None:
        """Apply the outcome, on the loop; called exactly once."""
        self._unpin()
        self._finished(self, error)

    def _unpin(self) -> None:
        for descriptor in self._pinned:
            descriptor.unpin()
        self._pinned = []


FlushFinished = Callable[[FlushTask, BaseException | None], None]


class LogFlush:
    """Volatile part of one log, and its flushes."""

    __slots__ = (
        "_clock",
        "_epochs",
        "_flusher",
        "_folder",
        "_folder_changed",
        "_health",
        "_offsets",
        "_producers",
        "_segments",
        "_task",
        "_unsynced_paths",
        "appended_count",
        "changed",
        "directory_is_new",
        "last_flush_ms",
    )

    def __init__(
        self,
        segments: LogSegments,
        offsets: LogOffsets,
        epochs: LeaderEpochCache,
        producers: ProducerState,
        folder: Folder,
        clock: Clock,
        health: LogHealth,
    ) -> None:
        self._segments = segments
        self._offsets = offsets
        self._epochs = epochs
        self._producers = producers
        self._folder = folder
        self._clock = clock
        self._health = health
        self._task: FlushTask | None = None  # the running one
        self._flusher: Flusher | None = None
        self._folder_changed = False
        self._unsynced_paths: tuple[str, ...] = ()
        self.appended_count = 0
        """Number of records since the last flush began."""
        self.changed = offsets.recovery_point < offsets.log_end_offset or snapshot_is_due(
            producers, offsets.log_end_offset
        )
        """Whether a clean stop must flush the log."""
        self.directory_is_new = False
        """Set by the creator of the directory: the first flush then makes its name durable too."""
        self.last_flush_ms = clock.time_ms()

    @property
    def under_way(self) -> bool:
        return self._task is not None

    def names_changed(self, *written: str) -> None:
        """Record changed names in the log's directory, and unsynced `written` files in it."""
        self._folder_changed = True
        self._unsynced_paths += written

    def write_snapshot(self) -> None:
        """Write a snapshot of the producers at the log end, if they changed. Raises OSError."""
        path = write_producers(self._producers, self._folder, self._offsets.log_end_offset)
        if path is not None:
            self.names_changed(path)

    def write_epochs(self, entries: Sequence[tuple[int, int]]) -> None:
        """Replace the file of leader epochs now; a running flush does not overwrite it. Raises OSError."""
        path, data = self._folder.join(LEADER_EPOCH_CHECKPOINT), format_epochs(entries)
        if self._task is None:
            self._folder.disk.write_atomic(path, data)
        else:
            self._task.replace_epochs(path, data)

    def log_was_cut(self, offset: int) -> None:
        """Record a truncation at `offset`: a running flush does not cover later appends from there on."""
        if self._task is not None:
            self._task.end_offset = min(self._task.end_offset, offset)
        self.changed = self._folder_changed = True

    def prepare(self, *, closing: bool = False) -> FlushTask | None:
        """Return the flush of everything up to the log end, or None. Its `run` blocks, `finish` must follow.

        `closing` prepares the log for the start after a clean stop, which trusts the indexes of the active segment too
        and reads the producers from a snapshot.

        Raises OSError, and InvariantError while another flush of this log runs.
        """
        if self._task is not None:
            raise InvariantError(f"two flushes of {self._health.name} at once")
        offsets, epochs, folder = self._offsets, self._epochs, self._folder
        epochs_changed = epochs.must_be_written(offsets.log_end_offset)
        behind = offsets.recovery_point < offsets.log_end_offset
        refused = None
        if closing:
            if not (self.changed or epochs_changed):
                return None
            self._folder_changed |= self._segments.active.aborted.awaits_file
            self._segments.active.become_inactive()
            self.write_snapshot()
        elif not (behind or self._unsynced_paths or epochs_changed):
            return None
        elif not self._producers.snapshot_offsets and len(self._segments) > 1:
            refused = self._write_lost_snapshot()
        # No start rebuilds indexes of complete segments before it; a segment that ends there may be complete by now.
        segments = self._segments.holding(offsets.recovery_point - 1)
        task = FlushTask(
            folder.disk,
            segments,
            offsets.log_end_offset,
            self._finished,
            data=behind,
            closing=closing,
            epochs_file=(folder.join(LEADER_EPOCH_CHECKPOINT), format_epochs(epochs.entries()))
            if epochs_changed
            else None,
            loose_paths=self._unsynced_paths,
            folder=folder.path if self._folder_changed else None,
            # A clean stop ends with a marker in that directory, and its sync makes all names durable at once.
            holder=posixpath.dirname(folder.path) if self.directory_is_new and not closing else None,
        )
        task.refused = task.refused or refused
        if closing:
            self.changed = False
        if epochs_changed:
            epochs.note_written()
        self._unsynced_paths = ()
        self._folder_changed = False
        self.directory_is_new = False
        self.appended_count = 0
        self.last_flush_ms = self._clock.time_ms()
        self._task = task
        return task

    def _write_lost_snapshot(self) -> OSError | None:
        """Write the producers if no snapshot is left: without one a start scans the log only from the last roll before
        the recovery point. Returns the error of a full disk. Raises OSError.
        """
        try:
            self.write_snapshot()
        except OSError as error:
            if error.errno not in TRANSIENT_ERRORS:
                raise
            return error
        return None

    def _finished(self, task: FlushTask, error: BaseException | None) -> None:
        self._task = None
        health, offsets = self._health, self._offsets
        if health.closed:
            return
        if error is not None:
            health.fail()
            if isinstance(error, OSError):
                health.report(error, "a flush")
            return
        offsets.flushed_offset = max(offsets.flushed_offset, min(task.end_offset, offsets.log_end_offset))
        if task.refused is None:
            offsets.recovery_point = offsets.flushed_offset
        else:
            self._epochs.dirty = True
            health.report(task.refused, "a part of a flush")
            health.events.flush_needed(health.partition)

    def run(self, *, closing: bool = False) -> None:
        """Flush everything, blocking. Raises KafkaError KAFKA_STORAGE_ERROR."""
        try:
            task = self.prepare(closing=closing)
        except OSError as error:
            raise self._health.storage_error(error, "a flush") from error
        if task is None:
            return
        try:
            task.run()
        except OSError as error:
            task.finish(error)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"a flush of {self._health.name} failed: {error.strerror}"
            ) from error
        task.finish(None)

    def request(self, pool: BlockingPool, done: FlushDone) -> None:
        """Call `done(None)` once everything appended so far is durable; concurrent requests share one sync."""
        if self._flusher is None:
            self._flusher = Flusher(self, self._offsets)
        self._flusher.request(pool, self._offsets.log_end_offset, done)

    def request_closing(self, pool: BlockingPool, done: FlushDone) -> None:
        """Do the work of closing the log in the pool instead of on the loop, then call `done(error)`.

        No other flush may run. After a failure the log is marked as failed, or `close` meets the error again.
        """
        try:
            task = self.prepare(closing=True)
        except OSError as error:
            done(error)
            return
        if task is None:
            done(None)
            return

        def finished(_: None, error: BaseException | None) -> None:
            task.finish(error)
            done(error)

        pool.submit(task.run, finished)


class Flusher:
    """Group commit of one log; created at the first wait for a flush."""

    __slots__ = ("_flush", "_offsets", "_running", "_waiting")

    def __init__(self, flush: LogFlush, offsets: LogOffsets) -> None:
        self._flush = flush
        self._offsets = offsets
        self._running = False
        self._waiting: list[tuple[int, FlushDone]] = []

    def request(self, pool: BlockingPool, offset: int, done: FlushDone) -> None:
        """Call `done(None)` on the loop once everything before `offset` is durable, `done(error)` if that fails."""
        if offset <= self._offsets.recovery_point:
            done(None)
            return
        self._waiting.append((offset, done))
        if not self._running:
            self._start(pool)

    def _start(self, pool: BlockingPool) -> None:
        try:
            task = self._flush.prepare()
        except OSError as error:
            self._answer(self._offsets.log_end_offset, error)
            return
        if task is None:
            self._answer(self._offsets.log_end_offset, None)
            return
        self._running = True

        def finished(_: None, error: BaseException | None) -> None:
            self._running = False
            task.finish(error)
            self._answer(task.end_offset, error)
            if self._waiting and not self._running:
                self._start(pool)

        pool.submit(task.run, finished)

    def _answer(self, end_offset: int, error: BaseException | None) -> None:
        # A request for an offset above the log end waits for records that were truncated since.
        all_of_it = error is not None or end_offset >= self._offsets.log_end_offset
        covered = [done for offset, done in self._waiting if all_of_it or offset <= end_offset]
        self._waiting = [entry for entry in self._waiting if not all_of_it and entry[0] > end_offset]
        for done in covered:
            done(error)
