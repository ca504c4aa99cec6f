"""Runs the tasks of a load without Spark, with Spark's rules for failures.

A small run executes its tasks in this process, one after another. A larger one has worker processes, each of which
executes one task at a time. A task that raises, or whose worker dies, is tried again up to `attempts` times. When a
task is given up, no further one starts.

**Invariants:** no worker runs any more when `open_local` ends, however it ends, so the files of a failed run can be
removed. A worker whose driver was killed ends itself (`ottla.pipeline.local.worker`).

Workers are started as new programs, not by fork: the libraries of table formats and object stores have threads, which
do not survive a fork.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from ottla.pipeline.local.channel import Result, reason_of

MODULE = "ottla.pipeline.local.worker"
END_S = 5.0
"""Seconds for a worker to remove the incomplete file of its task; after that it is killed."""

BURIAL_S = 1.0
"""Seconds until a process whose connection has ended is gone as well."""

T = TypeVar("T")


class TaskFailedError(Exception):
    """A task that was given up; the message is `Result.reason` of its last attempt, or describes the worker's end."""


@dataclass(slots=True)
class Count:
    """A number that moves while tasks end, as an accumulator of Spark."""

    value: int = 0

    def add(self, number: int) -> None:
        self.value += number


@dataclass(slots=True)
class LocalSession:
    """Executes tasks in `workers` processes; in this process if that is 0."""

    workers: int
    attempts: int
    notes: list[str] = field(default_factory=list)
    """Facts for the operator: workers that died."""
    _running: list[_Worker] = field(default_factory=list)

    def run(self, count: int, work: Callable[[int], T], observe: Callable[[int, T], object] | None = None) -> list[T]:
        """Results of the tasks 0 to `count` - 1, in that order; `observe` gets each as soon as its task has ended.

        `work` is pickled, unless it runs in this process. Raises TaskFailedError.
        """
        found: dict[int, T] = {}

        def end(number: int, result: T) -> None:
            found[number] = result
            if observe is not None:
                observe(number, result)

        if self.workers and count:
            _Run(self, count, pickle.dumps(work, pickle.HIGHEST_PROTOCOL), end).run()
        else:
            for number in range(count):
                end(number, self._tried(number, work))
        return [found[number] for number in range(count)]

    def _tried(self, number: int, work: Callable[[int], T]) -> T:
        for left in reversed(range(self.attempts)):
            try:
                return work(number)
            except Exception as error:
                if not left:
                    raise TaskFailedError(reason_of(error)) from error
        raise AssertionError

    def worker(self, others: Container[_Worker]) -> _Worker:
        """A worker of an earlier run that is none of `others`, else a new one; `close` ends it."""
        worker = next((each for each in self._running if each not in others), None) or _Worker()
        if worker not in self._running:
            self._running.append(worker)
        return worker

    def bury(self, worker: _Worker) -> int:
        """Remove a dead worker; returns its exit code, negative for a signal."""
        self._running.remove(worker)
        return worker.end(BURIAL_S)

    def cancel(self) -> None:
        """End the workers from another thread: the current run fails, and no task is tried again."""
        self.attempts = 0
        for worker in list(self._running):
            worker.ask_to_end()

    def close(self) -> None:
        """End all workers; returns when none runs any more."""
        for worker in self._running:
            worker.ask_to_end()
        while self._running:
            self._running.pop().end(END_S)


class _Worker:
    """A worker process; `task` is its current one."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                process_group=0,  # Ctrl-C in a terminal goes to the driver alone, which ends its workers
            )
        self.connection = Connection(ours.detach())
        self.task: int | None = None

    def ask_to_end(self) -> None:
        """Let a task unwind; an idle worker is not worth waiting for."""
        self._process.send_signal(signal.SIGKILL if self.task is None else signal.SIGTERM)

    def end(self, patience_s: float) -> int:
        """Wait until the process has ended, kill it after `patience_s`; returns its exit code."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        finally:
            self.connection.close()
        return code


class _Run:
    """Distribution of tasks over the workers of a session."""

    def __init__(self, session: LocalSession, count: int, work: bytes, end: Callable[[int, Any], object]) -> None:
        self._session = session
        self._count = count
        self._work = work
        self._end = end
        self._waiting = deque(range(count))
        self._failures: Counter[int] = Counter()
        self._workers: dict[Any, _Worker] = {}

    def run(self) -> None:
        """Return when all tasks have succeeded; the workers stay for the next run. Raises TaskFailedError."""
        try:
            for _ in range(min(self._session.workers, self._count)):
                self._start()
            while self._workers:
                for connection in wait(list(self._workers)):
                    self._receive(self._workers[connection])
        except BaseException:  # other tasks still run, and their results must not reach another run
            self._session.close()
            raise

    def _start(self) -> None:
        worker = self._session.worker(self._workers.values())
        self._workers[worker.connection] = worker
        with suppress(OSError):  # it died already, which its connection reports
            worker.connection.send(self._work)
        self._give(worker)

    def _give(self, worker: _Worker) -> None:
        if not self._waiting:
            del self._workers[worker.connection]
            return
        worker.task = self._waiting.popleft()
        with suppress(OSError):
            worker.connection.send(worker.task)

    def _receive(self, worker: _Worker) -> None:
        number = worker.task
        if number is None:
            raise AssertionError
        try:
            result: Result = worker.connection.recv()
        except (EOFError, OSError):
            self._replace(worker, number)
            return
        worker.task = None
        if result.reason:
            self._fail(number, result.reason)
        else:
            self._end(number, result.value)
        self._give(worker)

    def _replace(self, worker: _Worker, number: int) -> None:
        del self._workers[worker.connection]
        how = _end_text(self._session.bury(worker))
        attempts = self._session.attempts
        times = "its only attempt" if attempts == 1 else f"each of {attempts} attempts"
        self._fail(
            number,
            f"a worker process ended unexpectedly ({how}) in {times} at a task, such as when memory runs out and the "
            "system kills it; lower --max-bytes-per-task or run fewer tasks at once with --master local[N]",
        )
        self._session.notes.append(f"a worker process ended unexpectedly ({how}); its task was repeated")
        self._start()

    def _fail(self, number: int, reason: str) -> None:
        """Let the task be tried again. Raises TaskFailedError if that was its last attempt."""
        self._failures[number] += 1
        if self._failures[number] >= self._session.attempts:
            raise TaskFailedError(reason)
        self._waiting.appendleft(number)


def _end_text(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


@contextmanager
def open_local(workers: int, attempts: int) -> Iterator[LocalSession]:
    """A session with up to `workers` processes, 0 for tasks in this process; each task has up to `attempts`."""
    session = LocalSession(workers, attempts)
    try:
        yield session
    finally:
        session.close()
