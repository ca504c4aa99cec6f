"""Bounds what transactional ids keep in the coordinator's memory: the ids, and the partitions of open transactions.

Nobody is asked who he is, so any client may take as many ids as it likes, which stay until they expire, and open a
transaction on all partitions under each. Ids get half of the bound and partitions the other half, so that those who
have an id can go on when there is no room for more.

Growth is added up as it is admitted, and what went is found by counting anew, at most once a second, when the sum has
reached the bound: no path on which something goes has to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.common.platform.clock import Clock

ID_BYTES = 320
"""About what an id costs besides its characters."""
PARTITION_BYTES = 160
"""The same for a partition of a transaction."""

_COUNT_INTERVAL_S = 1.0


class MemoryUsage(NamedTuple):
    """About what ids and partitions keep in memory, in bytes."""

    ids: int
    partitions: int


def id_bytes(transactional_id: str) -> int:
    """About what an id without open transaction keeps."""
    return ID_BYTES + transactional_id.__sizeof__()


class TransactionMemory:
    """The account of all ids of one broker."""

    __slots__ = ("_clock", "_count", "_counted_s", "_ids", "_limit", "_partitions")

    def __init__(self, limit: Callable[[], int], clock: Clock, count: Callable[[], MemoryUsage]) -> None:
        """`limit()` is the bound in bytes, `count()` what all shards hold just now."""
        self._limit = limit
        self._clock = clock
        self._count = count
        self._counted_s = -_COUNT_INTERVAL_S
        self._ids = self._partitions = 0

    def loaded(self, held: MemoryUsage) -> None:
        """A shard that holds so much was read from its log."""
        self._ids += held.ids
        self._partitions += held.partitions

    def admits_id(self, transactional_id: str) -> bool:
        """Whether there is room for one more id, which is counted then."""
        growth, limit = id_bytes(transactional_id), self._limit() // 2
        if self._ids + growth > limit:
            self._count_anew()
            if self._ids + growth > limit:
                return False
        self._ids += growth
        return True

    def admits_partitions(self, count: int) -> bool:
        """The same for partitions of an open transaction."""
        growth, limit = count * PARTITION_BYTES, self._limit() // 2
        if self._partitions + growth > limit:
            self._count_anew()
            if self._partitions + growth > limit:
                return False
        self._partitions += growth
        return True

    def _count_anew(self) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._counted_s >= _COUNT_INTERVAL_S:
            self._counted_s = now_s
            self._ids, self._partitions = self._count()


def total(held: Iterable[MemoryUsage]) -> MemoryUsage:
    """Of several shards."""
    each = list(held)
    return MemoryUsage(sum(one.ids for one in each), sum(one.partitions for one in each))
