"""Limits of time: of calls by a library that has none itself, and the check of those that callers give."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from ottla.common.errors import OperatorError

T = TypeVar("T")


def require_seconds(limit_s: float | None) -> None:
    """Raises ValueError for NaN, which no time that passed is above or below: a wait with it would never end."""
    if limit_s is not None and math.isnan(limit_s):
        raise ValueError("a limit of time can't be NaN: give seconds")


def within(timeout_s: float, work: Callable[[], T], late: str) -> T:
    """What `work` returns or raises, in a thread of its own; OperatorError with the words `late` after `timeout_s`.

    It goes on then, and nobody hears of it.
    """
    outcome: queue.SimpleQueue[tuple[T, None] | tuple[None, BaseException]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((work(), None))
        except BaseException as error:  # whoever waits decides what it means
            outcome.put((None, error))

    threading.Thread(target=run, name="ottla-within", daemon=True).start()
    try:
        found, error = outcome.get(timeout=timeout_s)
    except queue.Empty:
        raise OperatorError(late) from None
    if error is not None:
        raise error
    return found  # type: ignore[return-value]
