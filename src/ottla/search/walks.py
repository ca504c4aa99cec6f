"""Order of matches across partitions: oldest first and newest first, with as little reading as the order needs.

Both walks return a match only when no unread record can precede it.

- Oldest first merges the partitions like sorted files: each partition stays in offset order, and the partition with
  the smallest timestamp is next. A record that is older than one before it in its partition keeps its place after it.
- Newest first is exact: by timestamp, partition and offset, descending, also where timestamps inside of a partition are
  not sorted. The time index proves it: ListOffsets returns the first offset at or after a time, so all unread offsets
  below it are older.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from ottla.search.plan import OffsetRange, Order
from ottla.search.reading import PartitionReader
from ottla.search.scan import Hit, Scanned
from ottla.search.source import TopicSource

_NEVER_READ = 2**63


class Walk(Protocol):
    """The unread ranges and the matches that were not returned yet."""

    @property
    def is_done(self) -> bool:
        """True if all is read and returned."""

    @property
    def is_read(self) -> bool:
        """True if all is read."""

    @property
    def pending_bytes(self) -> int:
        """Size of the matches that were not returned yet."""

    def step(self) -> Scanned:
        """Read a part of one partition. Raises KafkaError."""

    def take(self, wanted: int | None) -> Hit | None:
        """The next match, if it is proven; `wanted` more are to come, None for all."""

    def take_any(self, wanted: int | None) -> Hit | None:
        """The next match of those that were read, in order among them only; no step follows."""

    @property
    def before(self) -> Order | None:
        """Matches that do not precede this place were returned already, although they may be in `left`."""

    def left(self) -> Mapping[int, OffsetRange]:
        """Ranges that contain every match that was not returned."""


class OldestFirst:
    """See the module."""

    def __init__(self, readers: Sequence[PartitionReader]) -> None:
        self.before: Order | None = None
        self._open = [reader for reader in readers if not reader.is_done]
        self._pending: list[tuple[Order, Hit]] = []
        self.pending_bytes = 0

    @property
    def is_read(self) -> bool:
        return not self._open

    @property
    def is_done(self) -> bool:
        return not self._open and not self._pending

    def step(self) -> Scanned:
        reader = min(self._open, key=_lower_bound)
        found = reader.read_up()
        for hit in found.hits:
            heapq.heappush(self._pending, (hit.order, hit))
            self.pending_bytes += hit.size_bytes
        self._open = [each for each in self._open if not each.is_done]
        return found

    def take(self, wanted: int | None) -> Hit | None:
        if not self._pending:
            return None
        bound = min(map(_lower_bound, self._open), default=None)
        return self.take_any(wanted) if bound is None or self._pending[0][0] < bound else None

    def take_any(self, wanted: int | None) -> Hit | None:
        if not self._pending:
            return None
        _, hit = heapq.heappop(self._pending)
        self.pending_bytes -= hit.size_bytes
        return hit

    def left(self) -> Mapping[int, OffsetRange]:
        ranges = {each.partition: OffsetRange(each.start, each.end, each.reached) for each in self._open}
        for (reached, partition, offset), _ in sorted(self._pending, reverse=True):
            end = ranges[partition].end if partition in ranges else offset + 1
            ranges[partition] = OffsetRange(offset, end, reached)
        return dict(sorted(ranges.items()))


def _lower_bound(reader: PartitionReader) -> Order:
    """No unread record has a place before this one."""
    return reader.reached, reader.partition, reader.start


class NewestFirst:
    """See the module. Matches that do not precede `before` were returned by an earlier search."""

    def __init__(self, source: TopicSource, readers: Sequence[PartitionReader], before: Order | None) -> None:
        self._source = source
        self.before = before
        self._open = [reader for reader in readers if not reader.is_done]
        self._behind: list[PartitionReader] = []
        """Partitions with unread records that may precede the next matches."""
        self._pending: list[tuple[Order, Hit]] = []
        """A heap by negated place."""
        self._proven: deque[Hit] = deque()
        self._not_wanted: list[Hit] = []
        """Matches that were read, beyond the limit."""
        self._is_checked = False
        self.pending_bytes = 0

    @property
    def is_read(self) -> bool:
        return not self._open

    @property
    def is_done(self) -> bool:
        return not self._open and not self._pending and not self._proven

    def step(self) -> Scanned:
        reader = max(self._behind or self._open, key=lambda each: (_newest_unread(each), each.partition))
        found = reader.read_down()
        for hit in found.hits:
            if self.before is None or hit.order < self.before:
                heapq.heappush(self._pending, (_negated(hit.order), hit))
                self.pending_bytes += hit.size_bytes
        self._open = [each for each in self._open if not each.is_done]
        self._is_checked = False
        return found

    def take(self, wanted: int | None) -> Hit | None:
        if not self._proven and self._pending and not self._is_checked:
            self._is_checked = True
            self._prove(wanted)
        return self._next_proven() if self._proven else None

    def take_any(self, wanted: int | None) -> Hit | None:
        if self._proven:
            return self._next_proven()
        if not self._pending:
            return None
        if wanted is not None and wanted < len(self._pending):
            self._choose(wanted)
        return self._popped(heapq.heappop(self._pending)[1])

    def _next_proven(self) -> Hit:
        hit = self._proven.popleft()
        self.before = hit.order
        return self._popped(hit)

    def _choose(self, count: int) -> None:
        """Keep so many pending matches: the newest ones, but with each one all those behind it in its partition.

        So `left` contains the others and none of these.
        """
        behind: dict[int, list[Hit]] = {}
        for _, hit in sorted(self._pending, key=lambda each: each[1].offset):
            behind.setdefault(hit.partition, []).append(hit)
        lasts = [(_negated(hits[-1].order), hits) for hits in behind.values()]
        heapq.heapify(lasts)
        self._pending = []
        while len(self._pending) < count:
            place, hits = lasts[0]
            heapq.heappush(self._pending, (place, hits.pop()))
            if hits:
                heapq.heapreplace(lasts, (_negated(hits[-1].order), hits))
            else:
                heapq.heappop(lasts)
        self._not_wanted = [hit for hits in behind.values() for hit in hits]

    def left(self) -> Mapping[int, OffsetRange]:
        ranges = {each.partition: OffsetRange(each.start, each.end) for each in self._open}
        for hit in (*self._proven, *(hit for _, hit in self._pending), *self._not_wanted):
            known = ranges.get(hit.partition, OffsetRange(hit.offset, hit.offset + 1))
            ranges[hit.partition] = OffsetRange(min(known.start, hit.offset), max(known.end, hit.offset + 1))
        return dict(sorted(ranges.items()))

    def _popped(self, hit: Hit) -> Hit:
        self.pending_bytes -= hit.size_bytes
        return hit

    def _prove(self, wanted: int | None) -> None:
        """Move matches to `_proven`, if the time index shows that no unread record is newer."""
        count = self._provable(wanted)
        if not count:
            self._behind = []
            return
        chosen = heapq.nsmallest(count, self._pending)
        oldest = chosen[-1][1].timestamp
        unread = {each.partition: each.end for each in self._open}
        firsts = self._source.offsets_since(oldest, unread) if oldest >= 0 else dict.fromkeys(unread, 0)
        self._behind = [each for each in self._open if firsts[each.partition] < each.end]
        if not self._behind:
            for _ in range(count):
                self._proven.append(heapq.heappop(self._pending)[1])
            self._is_checked = False

    def _provable(self, wanted: int | None) -> int:
        """Number of matches to prove: those that are wanted, or those newer than all that was read last."""
        if wanted is not None and len(self._pending) >= wanted:
            return wanted
        frontier = max(map(_newest_unread, self._open), default=None)
        if frontier is None:
            return len(self._pending)
        return sum(hit.timestamp > frontier for _, hit in self._pending)


def _newest_unread(reader: PartitionReader) -> int:
    """An estimate of the largest unread timestamp, to choose the next partition; the time index decides."""
    return _NEVER_READ if reader.oldest is None else reader.oldest


def _negated(order: Order) -> Order:
    return -order[0], -order[1], -order[2]
