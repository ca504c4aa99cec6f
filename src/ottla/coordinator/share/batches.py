"""Combination of state batches into the shortest list that has the same state at each offset.

Where batches overlap, the higher delivery count wins, then the higher state, as in Apache Kafka. So the order in which
batches arrive does not matter, and a repeated write changes nothing. Offsets below the start offset are dropped.

Invariant: a combined list is sorted and free of overlaps, and no two adjacent batches have the same state and count.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise
from operator import attrgetter

from ottla.common.kafka.share_state import StateBatch

Batches = tuple[StateBatch, ...]

_FIRST = attrgetter("first_offset")
_LAST = attrgetter("last_offset")


def combine(stored: Batches, added: Sequence[StateBatch], start_offset: int) -> Batches:
    """Return `stored`, a combined list, with `added`, in any order, at and above `start_offset`.

    Costs time for `added` and the batches that touch it, not for all of `stored`.
    """
    stored = _from(stored, start_offset)
    clipped = [_clip(batch, start_offset) for batch in added if batch.last_offset >= start_offset]
    if not clipped:
        return stored
    low = bisect_left(stored, min(map(_FIRST, clipped)) - 1, key=_LAST)
    high = bisect_right(stored, max(map(_LAST, clipped)) + 1, key=_FIRST)
    return stored[:low] + _sweep([*stored[low:high], *clipped]) + stored[high:]


def _from(stored: Batches, start_offset: int) -> Batches:
    index = bisect_left(stored, start_offset, key=_LAST)
    kept = stored[index:]
    if kept and kept[0].first_offset < start_offset:
        return (_clip(kept[0], start_offset), *kept[1:])
    return kept


def _clip(batch: StateBatch, start_offset: int) -> StateBatch:
    if batch.first_offset >= start_offset:
        return batch
    return StateBatch(start_offset, batch.last_offset, batch.state, batch.delivery_count)


def _sweep(batches: list[StateBatch]) -> Batches:
    """Combine batches in any order: from one boundary to the next the batch with the highest count and state wins."""
    batches.sort(key=_FIRST)
    bounds = sorted({offset for batch in batches for offset in (batch.first_offset, batch.last_offset + 1)})
    open_batches: list[tuple[int, int, int]] = []
    """Heap of (-count, -state, last offset); ended batches are removed when they are at the top."""
    combined: list[StateBatch] = []
    position = 0
    for offset, end in pairwise(bounds):
        while position < len(batches) and batches[position].first_offset == offset:
            batch = batches[position]
            heappush(open_batches, (-batch.delivery_count, -batch.state, batch.last_offset))
            position += 1
        while open_batches and open_batches[0][2] < offset:
            heappop(open_batches)
        if open_batches:
            count, state, _ = open_batches[0]
            _append(combined, StateBatch(offset, end - 1, -state, -count))
    return tuple(combined)


def _append(combined: list[StateBatch], batch: StateBatch) -> None:
    if combined:
        last = combined[-1]
        same = last.state == batch.state and last.delivery_count == batch.delivery_count
        if same and last.last_offset + 1 == batch.first_offset:
            combined[-1] = StateBatch(last.first_offset, batch.last_offset, batch.state, batch.delivery_count)
            return
    combined.append(batch)
