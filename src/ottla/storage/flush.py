"""Making a log durable: what has to be synced before the recovery point may move, and waiting for it together.

A `FlushTask` is made on the loop, its `run` blocks and belongs in a pool, its `finish` runs on the loop again.
`Flusher` is the group commit: requests that come while a flush runs share the next one.

Invariants:
- The recovery point moves only after everything before it is durable: data, indexes of segments that are complete,
  leader epochs, the producer snapshot where the next segment begins, and the names in the directory.
- One flush of a log runs at a time, so offsets become durable in order.
- A failed sync is final: the kernel may have dropped the pages, so the log takes no more appends.

Left out: deciding when to flush (`flush.messages`: append result; `flush.ms` and rolls: log manager).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.clock import BlockingPool
from ottla.common.disk import Disk, File
from ottla.storage.descriptors import Descriptor

if TYPE_CHECKING:
    from ottla.storage.log import Log

FlushDone = Callable[[BaseException | None], None]


class FlushTask:
    """Everything one flush syncs; holds a pin on each file."""

    __slots__ = (
        "_atomic_writes",
        "_disk",
        "_files",
        "_folder",
        "_holder",
        "_log",
        "_loose_paths",
        "_pinned",
        "end_offset",
    )

    def __init__(
        self,
        log: Log,
        end_offset: int,
        descriptors: list[Descriptor],
        *,
        atomic_writes: list[tuple[str, bytes]],
        loose_paths: list[str],
        folder: str | None,
        holder: str | None,
    ) -> None:
        """`loose_paths` are files written without a descriptor that is kept; `folder` is synced when given.

        `atomic_writes` are files of that folder; `holder` is the directory that got its name, synced when given.
        """
        self._log = log
        self._disk: Disk = log.disk
        self._files: list[File] = []
        self._pinned: list[Descriptor] = []
        try:
            for descriptor in descriptors:
                self._files.append(descriptor.pin())
                self._pinned.append(descriptor)
        except OSError:
            self._unpin()
            raise
        self._atomic_writes = atomic_writes
        self._loose_paths = loose_paths
        self._folder = folder
        self._holder = holder
        self.end_offset = end_offset

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
        for path, data in self._atomic_writes:
            self._disk.write_atomic(path, data)
        if self._folder is not None and not self._atomic_writes:  # each of those synced the folder
            self._disk.fsync_dir(self._folder)
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
        covered = [done for offset, done in self._waiting if offset <= end_offset or error is not None]
        self._waiting = [entry for entry in self._waiting if entry[0] > end_offset and error is None]
        for done in covered:
            done(error)
