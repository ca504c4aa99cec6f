"""Making a log durable: what has to be synced before its offsets may move, and waiting for it together.

A `FlushTask` is made on the loop, its `run` blocks and belongs in a pool, its `finish` runs on the loop again.
`Flusher` is the group commit: requests that come while a flush runs share the next one.

Invariants:
- The flushed offset moves only after the data before it is durable, and all names in the directory: then a start finds
  it. The recovery point, from which a start reads the log, moves only after indexes of segments that are complete and
  leader epochs are durable too. A full disk may refuse those: then it stays, and another flush tries again.
- One flush of a log runs at a time, so offsets become durable in order.
- A failed sync is final: the kernel may have dropped the pages, so the log takes no more appends.

Left out: deciding when to flush (`flush.messages`: append result; `flush.ms` and rolls: log manager).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.clock import BlockingPool
from ottla.common.disk import Disk, File
from ottla.storage.descriptors import Descriptor

if TYPE_CHECKING:
    from ottla.storage.log import Log
    from ottla.storage.segment import Segment

FlushDone = Callable[[BaseException | None], None]
TRANSIENT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
"""The disk works, there is just no room: what was refused may succeed the next time."""


class FlushTask:
    """Everything one flush syncs; holds a pin on each file."""

    __slots__ = (
        "_atomic_writes",
        "_closing",
        "_disk",
        "_files",
        "_folder",
        "_holder",
        "_log",
        "_loose_paths",
        "_pinned",
        "end_offset",
        "refused",
    )

    def __init__(
        self,
        log: Log,
        segments: list[Segment],
        *,
        closing: bool,
        atomic_writes: list[tuple[str, bytes]],
        loose_paths: list[str],
        folder: str | None,
        holder: str | None,
    ) -> None:
        """A flush up to the log end; `segments` are all that reach beyond the recovery point.

        `closing`: the indexes of the last one count too, and a full disk is a failure. `loose_paths` are files written
        without a descriptor that is kept; `folder` is synced when given. `atomic_writes` are files of that folder;
        `holder` is the directory that got its name, synced when given. Raises OSError.
        """
        self._log = log
        self._closing = closing
        self._disk: Disk = log.disk
        self._files: list[File] = []
        self._pinned: list[Descriptor] = []
        self._atomic_writes = atomic_writes
        self._loose_paths = loose_paths
        self._folder = folder
        self._holder = holder
        self.end_offset = log.log_end_offset
        self.refused: OSError | None = None
        """What a full disk said to that which only the recovery point needs."""
        try:
            self._take_files(segments, data=log.recovery_point < log.log_end_offset)
        except OSError:
            self._unpin()
            raise

    def _take_files(self, segments: list[Segment], *, data: bool) -> None:
        indexed = []
        for segment in segments:
            if data:
                self._pin(segment.data_to_sync())
            if self._closing or segment is not segments[-1]:
                try:
                    files = segment.indexes_to_sync()
                except OSError as error:
                    self._refuse(error)
                else:
                    self._pin(files)
                    indexed.append(segment)
        for segment in indexed:
            segment.indexes_synced()

    def _pin(self, descriptors: list[Descriptor]) -> None:
        for descriptor in descriptors:
            self._files.append(descriptor.pin())
            self._pinned.append(descriptor)

    def _refuse(self, error: OSError) -> None:
        """Go on without, where only the recovery point needs it and the disk is only full."""
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
            except FileNotFoundError:  # deleted since, with the segment it belonged to
                continue
            try:
                loose.fsync()
            finally:
                loose.close()
        folder = self._folder
        for path, data in self._atomic_writes:
            try:
                self._disk.write_atomic(path, data)
            except OSError as error:
                self._refuse(error)
            else:
                folder = None  # synced with it
        if folder is not None:
            self._disk.fsync_dir(folder)
        if self._holder is not None:
            self._disk.fsync_dir(self._holder)

    def finish(self, error: BaseException | None) -> None:
        """Take note of the outcome, on the loop; called exactly once."""
        self._unpin()
        self._log.flush_finished(self, error)

    def _unpin(self) -> None:
        for descriptor in self._pinned:
            descriptor.unpin()
        self._pinned = []


def request_closing_flush(log: Log, pool: BlockingPool, done: FlushDone) -> None:
    """Do in the pool what `Log.close` would do on the loop, then `done(error)`; no other flush may be under way.

    A failure leaves the log marked as failed or `close` to meet it again.
    """
    try:
        task = log.prepare_flush(closing=True)
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
    """Group commit of one log; made when somebody first waits for a flush."""

    __slots__ = ("_log", "_running", "_waiting")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._running = False
        self._waiting: list[tuple[int, FlushDone]] = []

    def request(self, pool: BlockingPool, offset: int, done: FlushDone) -> None:
        """Call `done(None)` on the loop once everything before `offset` is durable, `done(error)` if that fails."""
        if offset <= self._log.recovery_point:
            done(None)
            return
        self._waiting.append((offset, done))
        if not self._running:
            self._start(pool)

    def _start(self, pool: BlockingPool) -> None:
        try:
            task = self._log.prepare_flush()
        except OSError as error:
            self._answer(self._log.log_end_offset, error)
            return
        if task is None:
            self._answer(self._log.log_end_offset, None)
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
        # Whoever waits for more than there is waits for what was cut off since.
        all_of_it = error is not None or end_offset >= self._log.log_end_offset
        covered = [done for offset, done in self._waiting if all_of_it or offset <= end_offset]
        self._waiting = [entry for entry in self._waiting if not all_of_it and entry[0] > end_offset]
        for done in covered:
            done(error)
