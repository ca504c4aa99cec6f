"""A mirror in a process of its own, as tests need it: small fetches, short sessions, a signal at one point."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

from ottla.client.librdkafka import membership
from ottla.client.librdkafka.batch_producer import BatchProducer
from ottla.client.wire.connection import BrokerUnreachable
from ottla.client.wire.security import PLAINTEXT
from ottla.mirror import driver
from ottla.mirror.driver import Mirror, Settings
from ottla.mirror.opening import PROGRESS, Endpoint
from ottla.mirror.option_values import STOP

FETCH_BYTES = 800
"""Small, for many transactions."""
SESSION_TIMEOUT_MS = 2_000
CARRY_S = 1.0
UNREACHABLE = 2
"""Exit code of one that found a broker down at its start."""
CARRIED = "carried.*"
METHODS = {"init": "initialize", "begin": "begin", "send": "send", "progress": "send", "commit": "commit"}


def signal_at(point: str, number: int, signal_number: int) -> None:
    """To this process `before X` or `after X`, the `number`th time."""
    when, name = point.split()
    called: Callable[..., Any] = getattr(BatchProducer, METHODS[name])
    count = 0

    def counted(self: BatchProducer, *arguments: Any) -> Any:
        nonlocal count
        if name not in ("send", "progress") or (arguments[0] == PROGRESS) == (name == "progress"):
            count += 1
        if when == "before" and count == number:
            os.kill(os.getpid(), signal_number)
        found = called(self, *arguments)
        if when == "after" and count == number:
            os.kill(os.getpid(), signal_number)
        return found

    setattr(BatchProducer, METHODS[name], counted)


def copy(source: str, target: str, pattern: str, template: str = "{topic}", **settings: Any) -> None:
    """Copy all records, or with `share` new ones until it is interrupted."""
    groups = settings.pop("groups", None)
    once = settings.get("share") is None
    wanted = Settings(
        re.compile(pattern), template, once, 3600.0, None if groups is None else re.compile(groups), **settings
    )
    ends = Endpoint(source, PLAINTEXT), Endpoint(target, PLAINTEXT)
    Mirror(*ends, wanted, lambda sentence: print(sentence, flush=True), lambda totals: None).run()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("source", "target", "pattern"):
        parser.add_argument(name)
    parser.add_argument("--at", default="", help="when")
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--signal", type=int, default=signal.SIGKILL)
    parser.add_argument("--share", default=None)
    parser.add_argument("--on-refused", default=STOP)
    parser.add_argument("--fetch-bytes", type=int, default=FETCH_BYTES)
    options = parser.parse_args()
    driver.FETCH_BYTES = options.fetch_bytes
    driver.CARRY_S = CARRY_S
    membership.SESSION_TIMEOUT_MS = SESSION_TIMEOUT_MS
    if options.at:
        signal_at(options.at, options.number, options.signal)
    try:
        copy(
            options.source,
            options.target,
            options.pattern,
            groups=CARRIED,
            share=options.share,
            on_refused=options.on_refused,
        )
    except BrokerUnreachable:  # as the command reports a cluster that never existed
        sys.exit(UNREACHABLE)


if __name__ == "__main__":
    main()
