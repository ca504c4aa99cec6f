"""Memory limits for transactional ids and for the partitions of open transactions.

Without authentication any client may create any number of ids, which stay until they expire, and open a transaction on
all partitions under each. Ids may use half of the limit and partitions the other half, so that clients
with an id can continue when new ids are rejected.

Growth is added on admission. Removals are not reported here: when the sum reaches the limit, everything is counted
again, at most once a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.common.platform.clock import Clock

ID_BYTES = 320
"""Approximate fixed cost of an id besides its characters."""
PARTITION_BYTES = 160
"""Approximate fixed cost of a partition of a transaction."""

_COUNT_INTERVAL_S = 1.0


class MemoryUsage(NamedTuple):
    """Approximate memory of ids and partitions, in bytes."""

    ids: int
    partitions: int


def id_bytes(transactional_id: str) -> int:
    """Return the approximate memory of an id without open transaction."""
    return ID_BYTES + transactional_id.__sizeof__()


class TransactionMemory:
    """Memory accounting for all ids of one broker."""

    __slots__ = ("_clock", "_count", "_counted_s", "_ids", "_limit", "_partitions")

    def __init__(self, limit: Callable[[], int], clock: Clock, count: Callable[[], MemoryUsage]) -> None:
        """`limit()` returns the limit in bytes, `count()` the current size of all shards."""
        self._limit = limit
        self._clock = clock
        self._count = count
        self._counted_s = -_COUNT_INTERVAL_S
        self._ids = self._partitions = 0

    def loaded(self, held: MemoryUsage) -> None:
        """Add the size of a shard that was loaded from its log."""
        self._ids += held.ids
        self._partitions += held.partitions

    def admits_id(self, transactional_id: str) -> bool:
        """Return whether there is room for one more id, and count it if so."""
        growth, limit = id_bytes(transactional_id), self._limit() // 2
        if self._ids + growth > limit:
            self._recount()
            if self._ids + growth > limit:
                return False
        self._ids += growth
        return True

    def admits_partitions(self, count: int) -> bool:
        """Return whether there is room for partitions of an open transaction, and count them if so."""
        growth, limit = count * PARTITION_BYTES, self._limit() // 2
        if self._partitions + growth > limit:
            self._recount()
            if self._partitions + growth > limit:
                return False
        self._partitions += growth
        return True

    def _recount(self) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._counted_s >= _COUNT_INTERVAL_S:
            self._counted_s = now_s
            self._ids, self._partitions = self._count()


def total(held: Iterable[MemoryUsage]) -> MemoryUsage:
    """Return the sum over several shards."""
    each = list(held)
    return MemoryUsage(sum(one.ids for one in each), sum(one.partitions for one in each))
