"""Log cleaner worker in a separate process: cleaning is CPU-bound and would block the event loop.

The process is started for the first round and reused. To stop a round, the process is killed: a round does not change
logs, and the files that it leaves are removed before the next one. The process exits when the broker is gone.

Invariant: a round is reported as ended only when its process is idle or has exited.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe

from ottla.common.platform.clock import BlockingPool
from ottla.storage.compaction.cleaning import CleanedGroup
from ottla.storage.compaction.worker import RoundFailure, WorkerReport, WorkerTask

_KILLED = -9
"""Killed by `stop`, or by the kernel for lack of memory."""


class CleanerProcess:
    """Implements `ottla.storage.compaction.worker.Worker`."""

    __slots__ = ("_connection", "_loop", "_pool", "_process", "_report", "_stopped")

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: BlockingPool) -> None:
        """`pool` starts and ends the process."""
        self._loop = loop
        self._pool = pool
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._report: Callable[[WorkerReport], None] | None = None
        self._stopped = False

    def begin(self, task: WorkerTask, report: Callable[[WorkerReport], None]) -> None:
        """See `Worker`."""
        self._report = report
        self._stopped = False
        self._pool.submit(lambda: self._hand_over(task), self._handed_over)

    def _hand_over(self, task: WorkerTask) -> None:
        """Send the task, in the pool: a task may be larger than the socket buffer."""
        if self._process is None:
            self._connection, theirs = Pipe()
            try:
                descriptor = theirs.fileno()
                command = [sys.executable, "-P", "-m", "ottla.app.cleaner_worker", str(descriptor)]
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[descriptor])
            finally:
                theirs.close()
        if self._connection is not None:
            self._connection.send(task)

    def _handed_over(self, _: object, error: BaseException | None) -> None:
        if error is not None or self._connection is None or self._stopped:
            self._discard("its process could not be started" if error is None else str(error))
            return
        self._loop.add_reader(self._connection.fileno(), self._hear)

    def resume(self) -> None:
        """See `Worker`."""
        if self._connection is not None:
            with contextlib.suppress(OSError):  # the reader reports its end
                self._connection.send(None)

    def stop(self) -> None:
        """See `Worker`."""
        self._stopped = True
        if self._process is not None and self._report is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process; no more reports."""
        self._report = None
        if self._connection is not None:
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _hear(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            report: WorkerReport = connection.recv()
        except (EOFError, OSError):
            self._loop.remove_reader(connection.fileno())
            self._discard("")
            return
        if not isinstance(report, CleanedGroup):
            self._loop.remove_reader(connection.fileno())
        self._give(report)

    def _discard(self, reason: str) -> None:
        """Discard a broken process; its task fails when it has exited."""
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

        def end() -> int:
            if process is None:
                return 0
            process.kill()
            return process.wait()

        def ended(code: int | None, error: BaseException | None) -> None:
            why = reason or f"its process ended with {code}"
            lacks_room = code == _KILLED or bool(reason)
            self._give(RoundFailure(why, lacks_room, worker_died=not self._stopped))

        self._pool.submit(end, ended)

    def _give(self, report: WorkerReport) -> None:
        notify = self._report
        if not isinstance(report, CleanedGroup):
            self._report = None
        if notify is not None:
            notify(report)
