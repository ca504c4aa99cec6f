"""Windows: ranges of offsets that worker processes scan ahead of the walk, with the result of one process.

A reader submits its next windows in order and takes their results in order. So neither the order of matches nor the
report depends on the number of processes. `Lookahead` bounds the windows whose results were not taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ottla.client.wire.model import KeyFreeRange
from ottla.search.key_ranges import NO_SKIPS, KeySkips
from ottla.search.plan import OffsetRange
from ottla.search.reading import PartitionReader
from ottla.search.scan import Matcher, Scanned
from ottla.search.source import FETCH_BYTES, TopicSource
from ottla.search.subject import Tally

START_S = 1.0
"""CPU seconds to search in this process first, and for each other process: its start takes a quarter of one."""
MAX_FETCHES_OF_WINDOW = 4
MAX_HIT_BYTES = 32 * 1024 * 1024
"""Bound of the matches in the result of a window, apart from its last fetch."""


class Window(NamedTuple):
    """Offsets to scan, `end` exclusive, but for `skips`. `by_reached`: see `search.scan.Scanner`."""

    partition: int
    start: int
    end: int
    record_bytes: float
    by_reached: bool
    skips: Sequence[KeyFreeRange] = ()


@dataclass(slots=True)
class WindowResult:
    """`lost`: offsets that were removed from the log before they were read."""

    found: Scanned
    lost: int
    tally: Tally


class WindowRunner(Protocol):
    """Scans windows elsewhere. Implementations: `search.workers.WorkerPool`, and one of the tests."""

    @property
    def capacity(self) -> int:
        """Windows to submit before a result is taken."""

    def begin(self, processes: int) -> None:
        """Use at most this number of processes. Called once, before the first window."""

    def submit(self, window: Window) -> int:
        """Begin a window; returns its number."""

    def take(self, number: int) -> WindowResult:
        """Wait for the result of a window. Raises KafkaError, OperatorError."""

    def discard(self, number: int) -> None:
        """Drop the result of a window."""


def run_window(source: TopicSource, window: Window, matcher: Matcher, fetch_bytes: int = FETCH_BYTES) -> WindowResult:
    """Scan a window; the result of a large one ends early. `matcher` has an empty tally. Raises KafkaError."""
    span = OffsetRange(window.start, window.end)
    skips = KeySkips(window.skips) if window.skips else NO_SKIPS
    reader = PartitionReader(source, window.partition, span, matcher, fetch_bytes, window.record_bytes, skips)
    limit = MAX_FETCHES_OF_WINDOW * fetch_bytes
    found = reader.read_rest(limit, MAX_HIT_BYTES, by_reached=window.by_reached)
    return WindowResult(found, reader.lost, matcher.tally)


@dataclass(slots=True)
class Lookahead:
    """Submits windows of all readers, up to the capacity of the runner."""

    runner: WindowRunner
    cpu_s: Callable[[], float]
    """The CPU time of this process, in seconds: waiting for a slow network, other processes would wait as well."""
    start_s: float = START_S
    readers: Sequence[WindowReader] = field(default_factory=list)
    pending: int = 0
    """Submitted windows whose results were not taken."""
    _began_s: float | None = None
    _offsets: int = 0
    """Those to search, at the beginning."""
    _is_due: bool = False

    def is_due(self) -> bool:
        """True from when the rest is enough for two processes, by the CPU time that the part before it took."""
        if self._is_due:
            return True
        now_s = self.cpu_s()
        if self._began_s is None:
            self._began_s, self._offsets = now_s, self._left()
        searched_s = now_s - self._began_s
        if searched_s < self.start_s:
            return False
        left = self._left()
        rest_s = left * searched_s / max(1, self._offsets - left)
        if rest_s < 2 * self.start_s:
            return False
        self._is_due = True
        self.runner.begin(max(2, int(rest_s / START_S)))
        return True

    def _left(self) -> int:
        return sum(reader.end - reader.start for reader in self.readers)

    def fill(self) -> None:
        """Submit windows of the readers with the fewest ones."""
        while self.pending < self.runner.capacity:
            ready = [each for each in self.readers if each.has_next_window]
            if not ready:
                return
            min(ready, key=lambda each: len(each.submitted)).submit_next()


class WindowReader(PartitionReader):
    """A reader that takes the results of its windows, once `Lookahead.is_due`."""

    def __init__(
        self,
        lookahead: Lookahead,
        newest_first: bool,
        reader_arguments: tuple[TopicSource, int, OffsetRange, Matcher, int],
        skips: KeySkips = NO_SKIPS,
    ) -> None:
        super().__init__(*reader_arguments, skips=skips)
        self._tally = reader_arguments[3].tally
        self._lookahead = lookahead
        self._newest_first = newest_first
        self.submitted: deque[tuple[int, Window]] = deque()

    @property
    def has_next_window(self) -> bool:
        """True if offsets are left to submit."""
        low, high = self._unsubmitted()
        return low < high

    def submit_next(self) -> None:
        """Submit the next window in the direction of the search; none ends inside of offsets to pass over."""
        low, high = self._unsubmitted()
        if self._newest_first:
            edge = max(low, high - self._window)
            skipped = self._skips.at(edge)
            low = edge if skipped is None else max(low, skipped.start)
        else:
            edge = min(high, low + self._window)
            skipped = self._skips.at(edge - 1)
            high = edge if skipped is None else min(high, skipped.end)
        skips = self._skips.within(low, high)
        window = Window(self.partition, low, high, self._record_bytes, not self._newest_first, skips)
        self.submitted.append((self._lookahead.runner.submit(window), window))
        self._lookahead.pending += 1

    def read_up(self) -> Scanned:
        if self._reads_itself():
            return super().read_up()
        window, found = self._take()
        before = self.reached
        found.hits = [
            hit if hit.order[0] >= before else hit._replace(order=(before, hit.partition, hit.offset))
            for hit in found.hits
        ]
        self.reached = max(before, found.reached)
        self.start = found.next_offset
        self._adapt(found.size_bytes, found.next_offset - window.start)
        if found.next_offset < window.end:
            self._resubmit(window._replace(start=found.next_offset))
        return found

    def read_down(self) -> Scanned:
        if self._reads_itself():
            return super().read_down()
        while True:
            window, found = self._take()
            if found.next_offset >= window.end:
                break
            self._discard_submitted()
            self._window = max(1, (found.next_offset - window.start) // 2)
        self._note_oldest(found)
        self.end = window.start
        self._adapt(found.size_bytes, window.end - window.start)
        return found

    def _reads_itself(self) -> bool:
        return not self.submitted and not self._lookahead.is_due()

    def _unsubmitted(self) -> tuple[int, int]:
        if not self.submitted:
            return self.start, self.end
        last = self.submitted[-1][1]
        return (self.start, last.start) if self._newest_first else (last.end, self.end)

    def _take(self) -> tuple[Window, Scanned]:
        if not self.submitted:
            self.submit_next()
        self._lookahead.fill()
        number, window = self.submitted[0]
        result = self._lookahead.runner.take(number)
        self.submitted.popleft()
        self._lookahead.pending -= 1
        if self._newest_first and result.found.next_offset < window.end:
            return window, result.found
        self.lost += result.lost
        self._tally.add(result.tally)
        return window, result.found

    def _resubmit(self, rest: Window) -> None:
        """Submit the unread end of a large window before those that follow it."""
        self.submitted.appendleft((self._lookahead.runner.submit(rest), rest))
        self._lookahead.pending += 1

    def _discard_submitted(self) -> None:
        for number, _ in self.submitted:
            self._lookahead.runner.discard(number)
        self._lookahead.pending -= len(self.submitted)
        self.submitted.clear()
