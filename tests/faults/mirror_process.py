"""A mirror that kills its process at one point; arguments: clusters, topics, the point, how often it was passed."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

from ottla.client.batch_producer import BatchProducer
from ottla.client.security import PLAINTEXT
from ottla.mirror import driver
from ottla.mirror.driver import Mirror, Settings
from ottla.mirror.opening import PROGRESS, Endpoint

FETCH_BYTES = 800
"""Small, for many transactions."""
METHODS = {"init": "initialize", "begin": "begin", "send": "send", "progress": "send", "commit": "commit"}


def kill_at(point: str, number: int) -> None:
    """`before X` or `after X`, the `number`th time."""
    when, name = point.split()
    called: Callable[..., Any] = getattr(BatchProducer, METHODS[name])
    count = 0

    def counted(self: BatchProducer, *arguments: Any) -> Any:
        nonlocal count
        if name not in ("send", "progress") or (arguments[0] == PROGRESS) == (name == "progress"):
            count += 1
        if when == "before" and count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        found = called(self, *arguments)
        if when == "after" and count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(BatchProducer, METHODS[name], counted)


def copy(source: str, target: str, pattern: str, template: str = "{topic}", groups: str | None = None) -> None:
    """All that is there."""
    settings = Settings(re.compile(pattern), template, True, 3600.0, None if groups is None else re.compile(groups))
    ends = Endpoint(source, PLAINTEXT), Endpoint(target, PLAINTEXT)
    Mirror(*ends, settings, print, lambda totals: None).run()


if __name__ == "__main__":
    driver.FETCH_BYTES = FETCH_BYTES
    kill_at(sys.argv[4], int(sys.argv[5]))
    copy(sys.argv[1], sys.argv[2], sys.argv[3], groups="carried.*")
