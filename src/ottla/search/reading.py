"""Reading of one partition in either direction, with the offsets that retention removes meanwhile.

Kafka has no fetch towards older offsets. The backward reader therefore fetches forward in a window of offsets below its
position; windows adapt to the size of records. State changes only after a whole step, so an interrupted search can be
resumed.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.search.key_ranges import NO_SKIPS, KeySkips
from ottla.search.plan import OffsetRange
from ottla.search.scan import Matcher, Scanned, Scanner, Unreadable
from ottla.search.source import FETCH_BYTES, TopicSource

EMPTY_FETCHES = 8
"""Fetches without records below the end, after which these offsets have none. A single empty one may be a throttled
fetch; all records before the end may have been compacted away."""
LARGEST_WINDOW = 1 << 24
LARGEST_CHANGE = 4
FIRST_RECORD_BYTES = 1024.0
"""Assumption for the size of the first fetch; too small a one costs a second fetch."""
FIRST_WINDOW_RECORD_BYTES = 8 * 1024
"""The same for the first window of offsets: too large a one costs bytes that a limit makes superfluous."""
_FETCH_MARGIN_BYTES = 64 * 1024


class PartitionReader:
    """The unread offsets of a partition, from `start` to before `end`."""

    def __init__(
        self,
        source: TopicSource,
        partition: int,
        span: OffsetRange,
        matcher: Matcher,
        fetch_bytes: int = FETCH_BYTES,
        record_bytes: float = FIRST_RECORD_BYTES,
        skips: KeySkips = NO_SKIPS,
    ) -> None:
        """`record_bytes`: an estimate of the stored bytes of an offset. `skips` have no match and are not read."""
        self.partition = partition
        self.start = span.start
        self.end = span.end
        self.lost = 0
        """Offsets that were removed from the log before they were read."""
        self.reached = span.reached
        self.oldest: int | None = None
        """Smallest timestamp so far, by headers of batches; None before the first step."""
        self._skips = skips
        self._source = source
        self._ascending = Scanner(partition, matcher, by_reached=True)
        self._descending = Scanner(partition, matcher, by_reached=False)
        self._fetch_bytes = fetch_bytes
        self._window = max(1, fetch_bytes // FIRST_WINDOW_RECORD_BYTES)
        self._record_bytes = record_bytes

    @property
    def is_done(self) -> bool:
        return self.start >= self.end

    def read_up(self) -> Scanned:
        """Scan one fetch from `start`, or pass over offsets. Raises KafkaError."""
        start = self.start
        found = self._next_up(self._ascending)
        if self._skips.at(start) is None:
            self._adapt(found.size_bytes, self.start - start)
        return found

    def read_down(self) -> Scanned:
        """Scan one window of offsets below `end`, or pass over offsets. Raises KafkaError."""
        skipped = self._skips.at(self.end - 1)
        if skipped is not None:
            self.end = max(self.start, skipped.start)
            found = Scanned(self.end, self.reached, records=skipped.records, skipped=skipped.records)
            found.oldest = skipped.oldest_ms if skipped.records else None
            self._note_oldest(found)
            return found
        floor = self._skips.last_end(self.end - 1, self.start)
        low = max(floor, self.end - self._window)
        found = self._scan(self._descending, low, self.start, self.end, self._wanted(low, self.end))
        bottom = low if found.first_offset is None else max(floor, min(low, found.first_offset))
        while found.next_offset < self.end:
            more = self._scan(self._descending, found.next_offset, found.next_offset, self.end, self._fetch_bytes)
            _add(found, more)
        self._adapt(found.size_bytes, self.end - bottom)
        self._note_oldest(found)
        self.end = max(self.start, bottom)
        return found

    def read_rest(self, max_bytes: int, max_hit_bytes: int, *, by_reached: bool) -> Scanned:
        """Scan upwards from `start`, until a bound is exceeded. Raises KafkaError."""
        found = Scanned(self.start, self.reached)
        scanner = self._ascending if by_reached else self._descending
        hit_bytes = 0
        while not self.is_done and found.size_bytes < max_bytes and hit_bytes < max_hit_bytes:
            more = self._next_up(scanner)
            hit_bytes += sum(hit.size_bytes for hit in more.hits)
            _add(found, more)
        return found

    def _next_up(self, scanner: Scanner) -> Scanned:
        """Scan one fetch from `start`, or pass over the offsets there. Raises KafkaError."""
        start = self.start
        skipped = self._skips.at(start)
        if skipped is None:
            end = self._skips.next_start(start, self.end)
            found = self._scan(scanner, start, start, end, self._wanted(start, end))
        else:
            reached = max(self.reached, skipped.newest_ms) if skipped.records else self.reached
            found = Scanned(min(skipped.end, self.end), reached, records=skipped.records, skipped=skipped.records)
            found.oldest = skipped.oldest_ms if skipped.records else None
        self.start, self.reached = found.next_offset, found.reached
        return found

    def _wanted(self, low: int, end: int) -> int:
        """The size of a fetch for the offsets from `low` to before `end`."""
        return min(self._fetch_bytes, int((end - low) * self._record_bytes * 1.25) + _FETCH_MARGIN_BYTES)

    def _scan(self, scanner: Scanner, offset: int, start: int, end: int, max_bytes: int) -> Scanned:
        """Scan one fetch at `offset` for the records from `start` on; offsets that are gone are passed and counted."""
        for _ in range(EMPTY_FETCHES):
            try:
                result = self._source.fetch(self.partition, offset, max_bytes)
            except KafkaError as error:
                offset = min(end, self._log_start(error, offset))
                self.lost += offset - start
                self.start = max(self.start, offset)
                start = offset
                if offset == end:
                    return Scanned(end, self.reached)
                continue
            try:
                found = scanner.scan(result, start, end, self.reached)
            except KafkaError as error:
                return self._unreadable(offset, end, error.message)
            if found.first_offset is not None or found.next_offset >= end:
                return found
            if result.high_watermark < end:
                reason = f"the high watermark of the leader is only {result.high_watermark}"
                return self._unreadable(offset, end, reason)
        return Scanned(end, self.reached)

    def _unreadable(self, offset: int, end: int, reason: str) -> Scanned:
        found = Scanned(end, self.reached)
        found.unreadable.append(Unreadable(self.partition, offset, end, reason))
        return found

    def _log_start(self, error: KafkaError, offset: int) -> int:
        """The log start offset, if records at `offset` were removed. Raises `error` otherwise."""
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise error
        log_start = self._source.start_offsets([self.partition])[self.partition]
        if log_start <= offset:
            raise error
        return log_start

    def _note_oldest(self, found: Scanned) -> None:
        if found.oldest is not None:
            self.oldest = found.oldest if self.oldest is None else min(self.oldest, found.oldest)

    def _adapt(self, size_bytes: int, offsets: int) -> None:
        """Choose the next window so that it fills a fetch."""
        self._record_bytes = max(1.0, size_bytes / max(1, offsets))
        ideal = int(self._fetch_bytes / self._record_bytes)
        bounded = max(self._window // LARGEST_CHANGE, min(self._window * LARGEST_CHANGE, ideal))
        self._window = max(1, min(LARGEST_WINDOW, bounded))


def _add(found: Scanned, more: Scanned) -> None:
    """Add a later scan of the same step."""
    found.next_offset, found.reached = more.next_offset, more.reached
    if more.oldest is not None:
        found.oldest = more.oldest if found.oldest is None else min(found.oldest, more.oldest)
    found.hits += more.hits
    found.records += more.records
    found.skipped += more.skipped
    found.size_bytes += more.size_bytes
    found.unreadable += more.unreadable
