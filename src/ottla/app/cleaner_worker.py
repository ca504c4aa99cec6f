"""Process that runs rounds of the log cleaner: `python -m ottla.app.cleaner_worker DESCRIPTOR`.

The descriptor is one end of a socket pair. It receives tasks and sends the reports of `cleaner.worker.run_round`, each
of which is answered before the work continues. The process ends at the next chunk after the other end is closed; the
names of its files mark them for removal by a broker that starts in the meantime.

It runs at a lower CPU priority than the broker: a round may be slow, a request may not. It ignores signals, which a
terminal or a service manager sends to both processes: the broker handles them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from ottla.app.disk import RealDisk
from ottla.storage.compaction.cleaning import CleanedGroup
from ottla.storage.compaction.worker import WorkerTask, run_round

NICENESS = 10
"""Nice value relative to the broker."""


class Throttle:
    """Limits the rate of bytes read and written, on average since its creation."""

    def __init__(self, bytes_per_second: float, wait: Callable[[float], object]) -> None:
        """`wait` is called with seconds, 0 if no pause is due."""
        self._rate = bytes_per_second
        self._wait = wait
        self._began = time.monotonic()
        self._bytes = 0

    def took(self, size: int) -> None:
        """Account for `size` bytes and wait for the rate limit."""
        self._bytes += size
        self._wait(max(self._bytes / self._rate - (time.monotonic() - self._began), 0.0))


def serve(connection: Connection) -> None:
    """Run rounds until the broker is gone. Raises EOFError or OSError then."""
    disk = RealDisk()

    def wait(seconds: float) -> None:
        if connection.poll(seconds):  # the broker waits for us and sends nothing: it is closed
            raise EOFError

    while True:
        task: WorkerTask = connection.recv()
        throttle = Throttle(task.max_bytes_per_second, wait)
        for report in run_round(task, disk, throttle.took):
            connection.send(report)
            if isinstance(report, CleanedGroup):
                connection.recv()
                throttle.took(report.output_bytes)


def main() -> None:
    """Entry point of the worker process."""
    os.nice(NICENESS)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The broker has exited or killed the round.
    with contextlib.suppress(EOFError, ConnectionError):
        serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
