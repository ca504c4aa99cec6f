"""Scrubber of a node's logs: reads complete segments at a bounded rate and reports damage.

A round covers all logs, in the order of their names, and the complete segments of each. The first round that reads a
log to its end covers its active segment too, which a start after a clean stop does not read. A step (`run_due`) gives
one piece of one segment to the pool; its findings are evaluated on the loop.

Invariants:
- At most one piece is read at a time, through files opened for it alone; nothing of a log is changed in the pool.
- A finding counts only if the segment is unchanged: part of its log, of the same length, and not about to be replaced
  by a cleaner. So retention, deletion, truncation and cleaning are not damage.
- Damage is logged once; each round that finds a damaged range reports it again.
- Memory is bounded: a round's list of partitions, and `MAX_DAMAGES` ranges of each damaged segment.

The rule is in `segment_scrub`. Not read: the incomplete active segment, the metadata log, and epoch files and producer
snapshots, which are behind memory. A damaged offset or time index is only reported: a search trusts only entries that
fit the log, and rebuilds the index otherwise (`segment`). The index of aborted transactions cannot be verified by
lookups, so it is rebuilt here.
"""

from __future__ import annotations

import errno
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.errors import InvariantError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import BlockingPool, Clock
from ottla.common.runbooks import DAMAGED_DATA
from ottla.metrics.registry import Counter
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.damage import Damage

if TYPE_CHECKING:
    from ottla.storage.repair.scrub_reading import SegmentReading

logger = logging.getLogger(__name__)

STEP_MS = 250
"""Time from one piece to the next."""
LEAST_ROUND_S = 600.0

_LOGS_PER_STEP = 256
"""Number of logs checked in one step while none of them is due."""


_MEDIUM_ERRORS = frozenset({errno.EIO, errno.ENOENT, errno.ENXIO})
"""Exceptions of reading a damaged segment. Other ones are about the system, not the segment."""


class Finding(NamedTuple):
    """Damage of a segment at its last reading."""

    damages: list[Damage]
    index_problem: str


class LogScrubber:
    """Scrubber of one node. Owned by the loop."""

    __slots__ = (
        "_active_read",
        "_clock",
        "_current",
        "_is_reading",
        "_logs",
        "_on_damage",
        "_pool",
        "_round",
        "_round_began_s",
        "_stopped",
        "bytes_read",
        "damaged",
        "least_round_s",
        "max_bytes_per_second",
    )

    def __init__(
        self,
        logs: LogManager,
        on_damage: Callable[[Damage], object],
        *,
        pool: BlockingPool,
        clock: Clock,
        bytes_read: Counter,
    ) -> None:
        """`on_damage` is called on the loop for each range that a round finds, new or not."""
        self._logs = logs
        self._on_damage = on_damage
        self._pool = pool
        self._clock = clock
        self.bytes_read = bytes_read
        self._round: Iterator[SegmentReading | None] = iter(())
        self._round_began_s: float | None = None
        self._active_read: dict[TopicPartition, None] = {}
        """Logs with an active segment that was read."""
        self._current: SegmentReading | None = None
        self._is_reading = False
        self._stopped = False
        self.max_bytes_per_second = 0
        """May be set at any time; 0 disables reading."""
        self.least_round_s = LEAST_ROUND_S
        """Minimum time from the start of a round to that of the next. May be set at any time."""
        self.damaged: dict[TopicPartition, dict[int, Finding]] = {}
        """By the base offset of the segment; only damaged ones."""

    def run_due(self) -> None:
        """Read the next piece, unless one is being read; called every `STEP_MS`."""
        if self._stopped or self._is_reading or self.max_bytes_per_second <= 0:
            return
        reading = self._current or self._next()
        if reading is None:
            return
        self._current = reading
        self._is_reading = True
        max_bytes = max(self.max_bytes_per_second * STEP_MS // 1000, 1)
        self._pool.submit(lambda: reading.read(max_bytes), self._was_read)

    def stop(self) -> None:
        """Stop reading. The running piece in the pool finishes first."""
        self._stopped = True
        if not self._is_reading:
            self._end()

    def _next(self) -> SegmentReading | None:
        """Return the next reading; None if nothing is due."""
        for found in self._round:
            return found
        now_s = self._clock.monotonic()
        if self._round_began_s is None or now_s - self._round_began_s >= self.least_round_s:
            self._round_began_s = now_s
            self._round = self._begin_round()
        return None

    def _begin_round(self) -> Iterator[SegmentReading | None]:
        """Iterate over all due segments; None in between if the search takes long."""
        by_topic: dict[str, list[int]] = {}
        for log in self._logs.logs():
            by_topic.setdefault(log.topic, []).append(log.partition)
        self._forget_gone()
        # Not one sort of all logs, which would take 50 ms with 50,000 of them.
        keys = ((topic, partition) for topic in sorted(by_topic) for partition in sorted(by_topic[topic]))
        for number, key in enumerate(keys, 1):
            base_offset, before = -1, None
            while (reading := self._reading_after(key, base_offset, before)) is not None:
                base_offset, before = reading.segment.base_offset, reading
                yield reading
            if number % _LOGS_PER_STEP == 0:
                yield None

    def _reading_after(
        self, key: TopicPartition, base_offset: int, before: SegmentReading | None
    ) -> SegmentReading | None:
        """Return the reading of the first segment behind `base_offset`, which `before` has read, or None."""
        log = self._logs.get_log(*key)
        if log is None or log.failed or log.cleaning is not None:
            return None
        segments = log.segments
        number = bisect_right(segments.base_offsets, base_offset)
        is_due = number < len(segments) - (key in self._active_read)
        if not is_due or not segments[number].data.size_bytes:
            return None
        was_cleaned = log.config.compacted or self._logs.cleaner_checkpoint.get(key) is not None
        seen = None
        if before is not None and before.is_done and number and segments[number - 1] is before.segment:
            seen = before.seen_behind
        from ottla.storage.repair.scrub_reading import SegmentReading  # imported here: new brokers have nothing to read

        return SegmentReading(log, number, was_cleaned=was_cleaned, seen_before=seen)

    def _forget_gone(self) -> None:
        """Remove findings of segments and logs that no longer exist."""
        for key in [key for key in self._active_read if self._logs.get_log(*key) is None]:
            del self._active_read[key]
        for key, known in [*self.damaged.items()]:
            log = self._logs.get_log(*key)
            there = () if log is None else log.segments.base_offsets
            for base_offset in [base_offset for base_offset in known if base_offset not in there]:
                del known[base_offset]
            if not known:
                del self.damaged[key]

    def _was_read(self, count: int | None, error: BaseException | None) -> None:
        self._is_reading = False
        reading = self._current
        if reading is None:
            raise InvariantError("the scrubber's reading belongs to no segment")
        self.bytes_read.value += count or 0
        if self._stopped or not reading.counts(self._logs):
            self._end()
            return
        if isinstance(error, OSError) and (error.errno is None or error.errno in _MEDIUM_ERRORS):
            reading.lose(error.strerror or str(error))
        elif error is not None:
            self._end()
            if not isinstance(error, OSError):
                raise error
            logger.warning("%s can't be scrubbed: %s", reading.segment.data.path, error, extra=RATE_LIMITED)
            return
        if reading.is_done:
            self._end()
            self._found(reading)

    def _end(self) -> None:
        """Base offset of the segment in the current reading, if any."""
        reading, self._current = self._current, None
        if reading is not None:
            reading.close()

    def _found(self, reading: SegmentReading) -> None:
        """Handle the end of a segment's reading, as far as it was readable."""
        segment = reading.segment
        if reading.damages and reading.log.add_missing_epochs():
            return  # it is read again in the next round, against its current entries
        if reading.is_active:
            self._active_read[reading.partition] = None
        known = self.damaged.setdefault(reading.partition, {})
        before = known.pop(segment.base_offset, Finding([], ""))
        now = Finding(reading.damages, reading.index_problem)
        if any(now):
            known[segment.base_offset] = now
        if not known:
            del self.damaged[reading.partition]
        if now.index_problem and now.index_problem != before.index_problem:
            logger.warning("%s has a damaged index: %s", segment.data.path, now.index_problem)
        if reading.aborted_problem:
            self._rebuild_aborted(reading)
        for damage in now.damages:
            if damage not in before.damages:
                logger.error("%s is damaged, its %s. See %s.", segment.data.path, damage, DAMAGED_DATA)
            self._on_damage(damage)

    def _rebuild_aborted(self, reading: SegmentReading) -> None:
        """Rebuild the index of aborted transactions, which readers would trust. Blocks, as at its next use."""
        segment = reading.segment
        logger.warning("rebuilding the transaction index of %s: %s", segment.data.path, reading.aborted_problem)
        try:
            reading.log.aborted.rebuild((segment,))
        except OSError as error:
            logger.warning("the transaction index of %s can't be rebuilt: %s", segment.data.path, error)
