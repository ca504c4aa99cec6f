"""Worker process of a local run: `python -m ottla.pipeline.local.worker FILE-DESCRIPTOR`.

It executes one task at a time. A thread receives the messages, so that the end of the driver is noticed while a task
runs: whatever the worker writes then can't be committed any more.

**Invariant:** a worker that the driver ends by SIGTERM, or that has lost its driver, unwinds its task first, which
removes the incomplete file.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from ottla.pipeline.local.channel import Result, reason_of

UNWIND_S = 5.0
"""Seconds for a task to unwind after the driver is gone."""


def main(descriptor: int) -> NoReturn:
    """Execute tasks until the driver closes the connection."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends its workers
    connection = Connection(descriptor)
    messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, messages), name="messages", daemon=True).start()
    try:
        pickled = b""
        work: Callable[[int], Any] | None = None
        while True:
            message = pickle.loads(messages.get())
            if isinstance(message, bytes):
                pickled, work = message, None
                continue
            try:
                if work is None:
                    work = pickle.loads(pickled)
                result = Result(work(message))
            except Exception as error:  # the driver decides whether the task is tried again
                result = Result(reason=reason_of(error))
            connection.send(result)
    except OSError:  # the driver is gone
        os._exit(1)
    except SystemExit:
        os._exit(0)


def _end(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not stop the removal of files
    raise SystemExit


def _receive(connection: Connection, messages: queue.SimpleQueue[bytes]) -> None:
    try:
        while True:
            messages.put(connection.recv_bytes())
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(UNWIND_S)
        os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
