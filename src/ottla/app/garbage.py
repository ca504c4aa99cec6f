"""Garbage collection of a broker: rare, in pauses of milliseconds.

Almost all objects are freed by reference counting, also those of connections, partitions and large requests: tests
check that these leave no reference cycles. A collection finds only cycles, but reads every object of its generations.
A full one would take 50 to 100 ms with a thousand topics and groups, and no client is served meanwhile.

So objects that survived a collection are frozen: later collections skip them, and read at most `YOUNG_OBJECTS`. A cycle
of frozen objects stays in memory until a full collection, which happens only when the frozen objects became many more.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import Any

YOUNG_OBJECTS = 50_000
"""Allocations that were not freed, after which a collection starts.

A request of 10,000 partitions allocates fewer. Collections every 700 allocations, the default, would take more than
half the time of such a request.
"""
CHECKED_EVERY = 1_000
"""Collections between two counts of the frozen objects."""
MIN_GROWTH = 100_000
GROWTH = 0.25
"""A full collection follows when there are this many more frozen objects than after the last one, at least
`MIN_GROWTH`."""
_FULL = 2


def collect_garbage_rarely() -> None:
    """Freeze all present objects, and collect from now on by the rules of this module."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    gc.callbacks.append(_RareCollections())
    gc.enable()


class _RareCollections:
    """Callback of the collector."""

    def __init__(self) -> None:
        self._until_check = CHECKED_EVERY
        self._frozen = gc.get_freeze_count()

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] == _FULL:
            gc.unfreeze()
        elif phase == "stop":
            gc.freeze()  # this also resets the counters of older generations, so the collector never selects them
            self._until_check -= 1
            if self._until_check <= 0:
                self._check()

    def _check(self) -> None:
        if gc.get_freeze_count() - self._frozen > max(MIN_GROWTH, GROWTH * self._frozen):
            # A collection can't start another one. In a thread without a loop, the next collection checks again.
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().call_soon(self._collect_all)
                self._until_check = CHECKED_EVERY
        else:
            self._until_check = CHECKED_EVERY

    def _collect_all(self) -> None:
        gc.collect()
        self._frozen = gc.get_freeze_count()
