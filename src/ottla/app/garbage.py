"""Garbage collection of a broker: rare, in pauses of milliseconds.

Almost all objects are freed by reference counting, also those of connections, partitions and large requests: tests
check that these leave no reference cycles. A collection finds only cycles, but reads every object of its generations.
A full one would take 50 to 100 ms with a thousand topics and groups, and no client is served meanwhile.

So objects that survived two collections are frozen: later collections skip them. A cycle of frozen objects stays in
memory until the next full collection, which is very rare and includes them.
"""

from __future__ import annotations

import gc
from typing import Any

THRESHOLDS = (50_000, 1, 1_000)
"""Of the three generations.

A request of 10,000 partitions allocates fewer than 50,000 objects. Collections every 700 allocations, the default,
would take more than half the time of such a request. The second generation is collected with every second collection of
the first, so with at most 150,000 objects, in about 20 ms; the default is every eleventh, half a million objects. A
full collection follows after 100 million allocations that were not freed.
"""
_SECOND, _FULL = 1, 2


def collect_garbage_rarely() -> None:
    """Freeze all present objects, and collect from now on by the rules of this module."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(_freeze_survivors)
    gc.enable()


def _freeze_survivors(phase: str, info: dict[str, Any]) -> None:
    if info["generation"] == _FULL and phase == "start":
        gc.unfreeze()
    elif info["generation"] >= _SECOND and phase == "stop":
        gc.freeze()
