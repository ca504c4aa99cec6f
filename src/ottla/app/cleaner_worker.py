"""The process in which rounds of the log cleaner run: `python -m ottla.app.cleaner_worker DESCRIPTOR`.

The descriptor is one end of a socket pair; over it come tasks and leave, one by one, what `cleaner.worker.run_round`
tells, each answered before the next is begun. The process ends when the other end is gone, at the next chunk that it
reads: what it writes has names that a broker which starts meanwhile removes.

It gets the CPU after the broker does: a round may take longer, a request must not. Signals are the broker's: a terminal
or a service manager sends them to both.
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
from ottla.storage.compaction.worker import CleaningTask, run_round

NICENESS = 10
"""Added to that of the broker."""


class Throttle:
    """Holds bytes read and written to a rate, on average since it was made."""

    def __init__(self, bytes_per_second: float, wait: Callable[[float], object]) -> None:
        """`wait` is called with seconds, 0 where none are due."""
        self._rate = bytes_per_second
        self._wait = wait
        self._began = time.monotonic()
        self._bytes = 0

    def took(self, size: int) -> None:
        """Wait until so many bytes more are allowed."""
        self._bytes += size
        self._wait(max(self._bytes / self._rate - (time.monotonic() - self._began), 0.0))


def serve(connection: Connection) -> None:
    """Run rounds until the broker is gone; raises EOFError, or OSError, then."""
    disk = RealDisk()

    def wait(seconds: float) -> None:
        if connection.poll(seconds):  # nothing is due from a broker that waits for us
            raise EOFError

    while True:
        task: CleaningTask = connection.recv()
        throttle = Throttle(task.max_bytes_per_second, wait)
        for told in run_round(task, disk, throttle.took):
            connection.send(told)
            if isinstance(told, CleanedGroup):
                connection.recv()
                throttle.took(told.output_bytes)


def main() -> None:
    """See the module."""
    os.nice(NICENESS)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The broker is gone, or has killed the round.
    with contextlib.suppress(EOFError, ConnectionError):
        serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
