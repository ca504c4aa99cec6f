"""Cleanable range of a log, and whether a cleaning pass is worthwhile.

A pass covers whole segments, from the first of the log up to the lowest of: the last stable offset, the active segment,
the first segment with a record that `min.compaction.lag.ms` protects, and the recovery point, since volatile records
must not replace durable ones. The part behind the checkpoint, the end of the last pass, is dirty.

Rules of Apache Kafka 4.4 (KIP-58, KIP-354), with two additions: the recovery point, and that `max.compaction.lag.ms`
also rolls the active segment of a log without appends.

The order of logs is in `log_cleaner`, the pass itself in `compaction`.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.files.log_config import MAX_LONG
from ottla.storage.files.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, offset_name
from ottla.storage.log.log import Log
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.compaction.sources import Source

logger = logging.getLogger(__name__)


class CleanableRange(NamedTuple):
    """Range that a pass over a log would read and write."""

    first_dirty_offset: int
    end_offset: int
    """Base offset of the first segment that must wait; not below the first dirty offset's segment."""
    clean_bytes: int
    """Bytes of the segments before the first dirty offset's."""
    cleanable_bytes: int
    """Bytes of the segments from there to the end."""
    overdue_ms: int
    """Time by which the oldest dirty record exceeds `max.compaction.lag.ms`; 0 if none does."""
    held_by: str
    """Condition that complete segments behind `end_offset` wait for; empty if there are none."""

    @property
    def dirty_ratio(self) -> float:
        """Ratio of bytes in a pass that the last one has not read, 0 to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_cleanable_dirty_ratio: float) -> bool:
        """Return whether a pass is worthwhile or overdue."""
        return self.cleanable_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > min_cleanable_dirty_ratio)


def first_dirty_offset(log: Log, checkpointed: int | None) -> int:
    """Return the start of the dirty part: the checkpoint, or the log start offset if the checkpoint is invalid."""
    start = log.log_start_offset
    if checkpointed is None:
        return start
    if checkpointed > log.log_end_offset:
        logger.warning(
            "%s was cleaned up to offset %d but ends at %d: cleaning restarts at its start, %d",
            log.name,
            checkpointed,
            log.log_end_offset,
            start,
        )
        return start
    if checkpointed < start and not log.config.deleted_by_age_or_size:
        logger.warning(
            "%s was cleaned up to offset %d but starts at %d: cleaning continues from there",
            log.name,
            checkpointed,
            start,
        )
    return max(checkpointed, start)


def cleanable_range(log: Log, first_dirty: int, now_ms: int) -> CleanableRange:
    """Return the cleanable range at `now_ms`; all below `first_dirty` is clean. May read time indexes; raises
    OSError.
    """
    segments = log.segments
    inactive = segments[:-1]
    dirty_number = segments.number_of(first_dirty)
    end_number = dirty_number
    stable = log.last_stable_offset(log.offsets.high_watermark_or_end)
    aborted_are_written = all(segment.aborted.is_written for segment in segments)
    lag_ms = log.config.min_compaction_lag_ms
    held_by = ""
    for segment, later in itertools.pairwise(segments[dirty_number:]):
        if later.base_offset > stable:
            held_by = "the last stable offset"
        elif later.base_offset > log.recovery_point:
            held_by = "a flush"
        elif not aborted_are_written:  # aborted records would count as committed
            held_by = "room for an index of aborted transactions"
        elif lag_ms > 0 and _newest_ms(segment) > now_ms - lag_ms:
            held_by = "min.compaction.lag.ms"
        if held_by:
            break
        end_number += 1
    return CleanableRange(
        first_dirty,
        segments.base_offsets[end_number],
        sum(segment.data.size_bytes for segment in inactive[:dirty_number]),
        sum(segment.data.size_bytes for segment in inactive[dirty_number:end_number]),
        _overdue_ms(inactive[dirty_number:], log.config.max_compaction_lag_ms, now_ms),
        held_by,
    )


def _newest_ms(segment: Segment) -> int:
    segment.search.load_timestamps()
    return segment.indexes.max_timestamp if segment.indexes.max_timestamp >= 0 else segment.data.mtime_ms()


def _overdue_ms(dirty: tuple[Segment, ...], max_lag_ms: int, now_ms: int) -> int:
    if max_lag_ms == MAX_LONG:
        return 0
    begun = [first for segment in dirty if (first := segment.search.load_first_timestamp()) > 0]
    return max(now_ms - max_lag_ms - min(begun), 0) if begun else 0


def roll_overdue(log: Log, now_ms: int) -> bool:
    """Roll the active segment if `max.compaction.lag.ms` is over for it; returns whether.

    Raises KafkaError KAFKA_STORAGE_ERROR, OSError.
    """
    active = log.active_segment
    if not active.data.size_bytes or log.config.max_compaction_lag_ms == MAX_LONG:
        return False
    first = active.search.load_first_timestamp()
    if first <= 0 or now_ms - first <= log.config.max_compaction_lag_ms:
        return False
    log.roll()
    return True


def sources_before(log: Log, end_offset: int) -> tuple[list[Source], list[int]]:
    """Return the segments before `end_offset`, the base offset of one, and the base offsets of those from there on.

    Raises OSError.
    """
    from ottla.storage.compaction.sources import Source  # imported here: many brokers clean nothing

    sources, later = [], []
    for number, segment in enumerate(log.segments):
        if segment.base_offset >= end_offset:
            later.append(segment.base_offset)
        else:
            sources.append(
                Source(
                    segment.base_offset,
                    log.segments.base_offsets[number + 1],
                    segment.data.size_bytes,
                    max(_file_size(log, segment, suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)),
                    segment.data.mtime_ms(),
                )
            )
    return sources, later


def _file_size(log: Log, segment: Segment, suffix: str) -> int:
    try:
        return log.folder.disk.size(log.folder.join(offset_name(segment.base_offset, suffix)))
    except FileNotFoundError:  # it is rebuilt when it is needed
        return 0
