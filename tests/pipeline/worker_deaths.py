"""Death of a worker of a standalone cluster, at a step of a task that runs on it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

WORKER_CLASS = b"org.apache.spark.deploy.worker.Worker"


@dataclass(frozen=True)
class Killer:
    """Sent to tasks; the first that calls `strike` kills, and leaves its working directory in `grave`.

    Without `machine` only the worker is killed by SIGKILL, and the task continues until the executor has ended because
    of it; with `machine` the executor and the task are killed too, as in a power failure.
    """

    grave: Path
    machine: bool = False
    driver: int = field(default_factory=os.getpid)
    """The process that is never killed."""

    def strike(self) -> None:
        if os.getpid() == self.driver:
            return
        try:
            with self.grave.open("x") as grave:
                grave.write(os.getcwd())
        except FileExistsError:
            return
        executor = _parent(_parent(os.getpid()))  # the process in between is the daemon that forks Python workers
        worker = _parent(executor)
        assert WORKER_CLASS in Path(f"/proc/{worker}/cmdline").read_bytes()
        os.kill(worker, signal.SIGKILL)
        if self.machine:
            os.kill(executor, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        while _lives(executor):
            time.sleep(0.02)


def _stat(pid: int) -> tuple[str, int]:
    """State and parent of a process."""
    state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return state, int(parent)


def _parent(pid: int) -> int:
    return _stat(pid)[1]


def _lives(pid: int) -> bool:
    with suppress(OSError):
        return _stat(pid)[0] != "Z"
    return False
