"""End of a command whose output goes to a pipe, once the reader of the pipe is gone.

A command that waits for records writes nothing and so does not notice a closed pipe: `ottla consume t | head -2` would
run until the next record.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Iterator

CHECK_S = 0.2


@contextlib.contextmanager
def ended_by_reader() -> Iterator[None]:
    """Raise BrokenPipeError in the block soon after the reader of standard output has closed it.

    Only for pipes in the main thread, and if Ctrl-C is not ignored: the block is interrupted in the same way.
    """
    main = threading.main_thread().ident
    if (
        threading.current_thread() is not threading.main_thread()
        or main is None
        or not callable(signal.getsignal(signal.SIGINT))
        or not _is_pipe()
    ):
        yield
        return
    done, left = threading.Event(), threading.Event()

    def watch() -> None:
        poller = select.poll()
        poller.register(sys.stdout.fileno(), 0)
        while not done.wait(CHECK_S):
            if any(events & (select.POLLERR | select.POLLHUP) for _, events in poller.poll(0)):
                left.set()
                signal.pthread_kill(main, signal.SIGINT)
                return

    thread = threading.Thread(target=watch, name="reader of the output", daemon=True)
    thread.start()
    try:
        yield
    except KeyboardInterrupt:
        if left.is_set():
            raise BrokenPipeError from None
        raise
    finally:
        done.set()


def _is_pipe() -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False
