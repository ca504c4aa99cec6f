"""Time limits: for calls of libraries that have none, and validation of limits from callers."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from ottla.common.errors import OperatorError

T = TypeVar("T")


def require_seconds(limit_s: float | None) -> None:
    """Raises ValueError for NaN, with which a wait would never end, because no comparison with it is true."""
    if limit_s is not None and math.isnan(limit_s):
        raise ValueError("a time limit can't be NaN: give seconds")


def within(timeout_s: float, work: Callable[[], T], late: str) -> T:
    """Run `work` in a thread and return its result; raises OperatorError with the message `late` after `timeout_s`.

    `work` then continues, and its result is discarded.
    """
    outcome: queue.SimpleQueue[tuple[T, None] | tuple[None, BaseException]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((work(), None))
        except BaseException as error:  # raised in the waiting thread
            outcome.put((None, error))

    threading.Thread(target=run, name="ottla-within", daemon=True).start()
    try:
        found, error = outcome.get(timeout=timeout_s)
    except queue.Empty:
        raise OperatorError(late) from None
    if error is not None:
        raise error
    return found  # type: ignore[return-value]
