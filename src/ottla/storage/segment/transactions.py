"""Transactions that hold back the last stable offset of a partition.

An open transaction does, and a decided one until its marker is below the high watermark: until then the marker may
still be truncated. Both count from the first offset of the transaction.

Invariant: `first_unstable` is never above the first offset of a transaction that counts; it is exact after `settle`.

The rules of the high watermark are in `replica`, producers in `producer_state`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ottla.storage.files.log_config import MAX_LONG

NONE_UNSTABLE = MAX_LONG


class CompletedTransaction(NamedTuple):
    """A transaction with a marker in the log, and the last stable offset at that time as in Kafka's indexes."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Transactions:
    """Transactions of one partition that are open, or decided and not replicated yet."""

    __slots__ = ("_decided", "_open", "first_unstable")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # producer id -> first offset, which rises
        # (first offset, offset of the marker), both rising: a transaction that began later and was decided earlier than
        # another never determines the result.
        self._decided: deque[tuple[int, int]] | None = None
        self.first_unstable = NONE_UNSTABLE

    def open_transactions(self) -> dict[int, int]:
        """Producer id -> first offset, in rising order."""
        return dict(self._open)

    def oldest_producer(self) -> int | None:
        """Producer of the transaction that has been open for longest; None without any."""
        return next(iter(self._open), None)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Add a producer's transaction, which begins at `first_offset`, the log end so far."""
        self._open[producer_id] = first_offset
        if first_offset < self.first_unstable:
            self.first_unstable = first_offset

    def end(self, producer_id: int, marker_offset: int) -> CompletedTransaction | None:
        """Apply the producer's marker; returns None if it ended nothing."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        decided = self._decided
        if decided is None:  # an empty one has 700 bytes, and most partitions have no transactions
            decided = self._decided = deque()
        while decided and decided[-1][0] >= first_offset:
            decided.pop()
        decided.append((first_offset, marker_offset))
        stable = next(iter(self._open.values()), marker_offset + 1)
        return CompletedTransaction(producer_id, first_offset, marker_offset, stable)

    def settle(self, high_watermark: int) -> int:
        """Drop decided transactions with a marker below the high watermark; returns the first unstable offset."""
        decided = self._decided
        while decided and decided[0][1] < high_watermark:
            decided.popleft()
        first = next(iter(self._open.values()), NONE_UNSTABLE)
        if decided and decided[0][0] < first:
            first = decided[0][0]
        self.first_unstable = first
        return first

    def replace(self, open_transactions: Iterable[tuple[int, int]]) -> None:
        """Replace the state: only these (producer id, first offset) are open, and none is decided."""
        self._open = dict(sorted(open_transactions, key=lambda entry: entry[1]))
        self._decided = None
        self.first_unstable = next(iter(self._open.values()), NONE_UNSTABLE)
