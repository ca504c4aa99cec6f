"""Memory limit for the state of all share partitions of a broker.

Growth is added on admission. Removals are not reported here: when the sum reaches the limit, everything is counted
again, at most once a second.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.kafka.share_state import SharePartitionKey
from ottla.common.platform.clock import Clock

KEY_BYTES = 640
"""Approximate cost of a share partition besides the characters of its group id."""
BATCH_BYTES = 200
"""Approximate cost of a state batch."""

_COUNT_INTERVAL_S = 1.0


def state_bytes(key: SharePartitionKey, batches: int) -> int:
    """Return the approximate memory of a share partition with this many batches."""
    return KEY_BYTES + key.group_id.__sizeof__() + batches * BATCH_BYTES


class ShareMemory:
    """Memory accounting for all share partitions of one broker."""

    __slots__ = ("_clock", "_count", "_counted_s", "_held_bytes", "_limit")

    def __init__(self, limit: Callable[[], int], clock: Clock, count: Callable[[], int]) -> None:
        """`limit()` returns the limit in bytes, `count()` the current size of all shards."""
        self._limit = limit
        self._clock = clock
        self._count = count
        self._counted_s = -_COUNT_INTERVAL_S
        self._held_bytes = 0

    def loaded(self, held_bytes: int) -> None:
        """Add the size of a shard that was loaded from its log."""
        self._held_bytes += held_bytes

    def admits(self, growth_bytes: int) -> bool:
        """Return whether there is room for more bytes, and count them if so."""
        limit = self._limit()
        if self._held_bytes + growth_bytes > limit:
            now_s = self._clock.monotonic()
            if now_s - self._counted_s >= _COUNT_INTERVAL_S:
                self._counted_s = now_s
                self._held_bytes = self._count()
            if self._held_bytes + growth_bytes > limit:
                return False
        self._held_bytes += growth_bytes
        return True
