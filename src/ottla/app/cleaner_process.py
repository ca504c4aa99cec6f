"""A worker of the log cleaner in a process of its own, since its work is the CPU's and would hold the loop up.

The process is started for its first round and kept for the next ones. To stop a round is to kill it: a round changes no
log, and the files it leaves are removed before the next one. It ends by itself when the broker is gone.

Invariant: a round has ended, for whoever is told so, only when its process waits or is no more.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Protocol

from ottla.common.platform.clock import BlockingPool
from ottla.storage.compaction.cleaning import CleanedGroup
from ottla.storage.compaction.worker import CleaningTask, RoundFailure, Told

_KILLED = -9
"""By `stop`, or by the kernel, which takes memory back."""


class _Loop(Protocol):
    def add_reader(self, descriptor: int, callback: Callable[[], object]) -> object: ...

    def remove_reader(self, descriptor: int) -> object: ...


class CleanerProcess:
    """Implements `ottla.storage.compaction.worker.Worker`."""

    __slots__ = ("_connection", "_loop", "_pool", "_process", "_stopped", "_tell")

    def __init__(self, loop: _Loop, pool: BlockingPool) -> None:
        """`pool` starts and ends the process."""
        self._loop = loop
        self._pool = pool
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._tell: Callable[[Told], None] | None = None
        self._stopped = False

    def begin(self, task: CleaningTask, tell: Callable[[Told], None]) -> None:
        """See `Worker`."""
        self._tell = tell
        self._stopped = False
        self._pool.submit(lambda: self._hand_over(task), self._handed_over)

    def _hand_over(self, task: CleaningTask) -> None:
        """In the pool: a task may be larger than what the socket takes at once."""
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
            self._bury("its process could not be started" if error is None else str(error))
            return
        self._loop.add_reader(self._connection.fileno(), self._hear)

    def go_on(self) -> None:
        """See `Worker`."""
        if self._connection is not None:
            with contextlib.suppress(OSError):  # its end is told by what is read
                self._connection.send(None)

    def stop(self) -> None:
        """See `Worker`."""
        self._stopped = True
        if self._process is not None and self._tell is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process; nothing is told any more."""
        self._tell = None
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
            told: Told = connection.recv()
        except (EOFError, OSError):
            self._loop.remove_reader(connection.fileno())
            self._bury("")
            return
        if not isinstance(told, CleanedGroup):
            self._loop.remove_reader(connection.fileno())
        self._give(told)

    def _bury(self, reason: str) -> None:
        """The process is of no use any more; what was asked of it has failed when it is gone."""
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

    def _give(self, told: Told) -> None:
        tell = self._tell
        if not isinstance(told, CleanedGroup):
            self._tell = None
        if tell is not None:
            tell(told)
