"""Worker processes of a search: start, windows and results, end.

A worker has connections of its own, with the security and the client id of the search. It ends when this process closes
its pipe or exits. Errors of the cluster are raised here when the result is taken.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.wire.security import ClientSecurity
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.search.subject import Decoders
from ottla.search.syntax import Node
from ottla.search.windows import Window, WindowResult

if TYPE_CHECKING:
    import subprocess
    from multiprocessing.connection import Connection

    from ottla.schemas.settings import SchemaSettings
    from ottla.search.masks import RecordMask

WINDOWS_PER_PROCESS = 2
"""One to scan, and one that waits, so that no worker is idle."""


class WorkerSetup(NamedTuple):
    """All that a worker needs for the windows of one search."""

    bootstrap_servers: str
    security: ClientSecurity
    client_id: str
    topic: str
    topic_id: str | None
    isolation: str
    condition: Node | None
    decoders: Decoders
    schemas: SchemaSettings | None
    mask: RecordMask | None


class WorkerFailure(NamedTuple):
    """An error of a window; `code` is None for an OperatorError."""

    code: int | None
    message: str


class WorkerLost(OperatorError):
    """A worker process ended during a search."""


@dataclass(slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection
    windows: deque[int]
    """Numbers of the windows that it has, in order."""


class WorkerPool:
    """Implements `ottla.search.windows.WindowRunner`. Processes start with the first window."""

    def __init__(self, setup: WorkerSetup, processes: int) -> None:
        self._setup = setup
        self._processes = processes
        self._workers: list[_Worker] = []
        self._waiting: deque[tuple[int, Window]] = deque()
        self._results: dict[int, WindowResult | WorkerFailure] = {}
        self._discarded: set[int] = set()
        self._next = 0

    @property
    def capacity(self) -> int:
        """See `WindowRunner`."""
        return WINDOWS_PER_PROCESS * self._processes

    def begin(self, processes: int) -> None:
        """See `WindowRunner`."""
        self._processes = min(self._processes, processes)

    def submit(self, window: Window) -> int:
        """See `WindowRunner`."""
        while len(self._workers) < self._processes:
            self._workers.append(self._started())
        self._next += 1
        self._waiting.append((self._next, window))
        self._assign()
        return self._next

    def take(self, number: int) -> WindowResult:
        """See `WindowRunner`."""
        while number not in self._results:
            self._receive()
        result = self._results.pop(number)
        if isinstance(result, WindowResult):
            return result
        raise (
            OperatorError(result.message) if result.code is None else KafkaError(ErrorCode(result.code), result.message)
        )

    def discard(self, number: int) -> None:
        """See `WindowRunner`."""
        if self._results.pop(number, None) is None:
            self._discarded.add(number)

    def close(self) -> None:
        """End the processes, also in the middle of a window."""
        for worker in self._workers:
            worker.process.kill()
            worker.connection.close()
        for worker in self._workers:
            worker.process.wait()
        self._workers.clear()

    def _started(self) -> _Worker:
        import subprocess  # imported here, as `multiprocessing`: short searches start no process
        from multiprocessing.connection import Pipe

        ours, theirs = Pipe()
        try:
            command = [sys.executable, "-P", "-m", "ottla.search.worker", str(theirs.fileno())]
            # A process group of its own: an interrupt of the terminal is for the search, which ends its workers.
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], process_group=0)
        finally:
            theirs.close()
        ours.send(self._setup)
        return _Worker(process, ours, deque())

    def _assign(self) -> None:
        """Give waiting windows to the workers with the fewest ones."""
        while self._waiting:
            worker = min(self._workers, key=lambda each: len(each.windows))
            if len(worker.windows) >= WINDOWS_PER_PROCESS:
                return
            number, window = self._waiting.popleft()
            if number in self._discarded:
                self._discarded.remove(number)
                continue
            worker.windows.append(number)
            try:
                worker.connection.send(window)
            except OSError:
                raise _lost(worker) from None

    def _receive(self) -> None:
        """Wait for results, and store them."""
        from multiprocessing.connection import wait

        for ready in wait([worker.connection for worker in self._workers]):
            worker = next(each for each in self._workers if each.connection is ready)
            try:
                result = worker.connection.recv()
            except (EOFError, OSError):
                raise _lost(worker) from None
            number = worker.windows.popleft()
            if number in self._discarded:
                self._discarded.remove(number)
            else:
                self._results[number] = result
        self._assign()


def _lost(worker: _Worker) -> WorkerLost:
    status = worker.process.wait()
    return WorkerLost(
        f"a worker process of the search ended with status {status}, perhaps for lack of memory: continue with the "
        "resume token, or search with --processes 1"
    )
