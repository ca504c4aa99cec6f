"""Selection of segments to delete: below the log start offset, too old, or beyond the retention size.

Invariant: only whole segments from the front, and only below the high watermark if replication tracks one.

The deletion is in `deletion.py`; compaction is separate.
"""

from __future__ import annotations

import logging

from ottla.storage.files.log_config import LogConfig
from ottla.storage.log.log_segments import LogOffsets, LogSegments
from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)


def count_deletable(segments: LogSegments, offsets: LogOffsets, config: LogConfig, now_ms: int, max_count: int) -> int:
    """Return how many segments from the front may be deleted at `now_ms`, `max_count` at most.

    May read time indexes; raises OSError.

    Includes the active segment only if it is expired too.
    """
    limit = offsets.high_watermark_or_end
    by_policy = config.deleted_by_age_or_size
    excess = segments.size_bytes - config.retention_bytes if by_policy and config.retention_bytes >= 0 else -1
    count = 0
    for number, segment in enumerate(segments):
        if count >= max_count:
            break
        last = segment is segments.active
        end_offset = offsets.log_end_offset if last else segments.base_offsets[number + 1]
        if end_offset > limit or (last and segment.data.size_bytes == 0):
            break
        below_start = not last and end_offset <= offsets.log_start_offset
        oversize = excess >= segment.data.size_bytes  # also of an empty cleaned segment
        if not (below_start or oversize or (by_policy and _outlived(segment, config.retention_ms, now_ms))):
            break
        excess -= segment.data.size_bytes
        count += 1
    return count


def _outlived(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    if retention_ms < 0:
        return False
    segment.search.load_timestamps()
    newest = segment.indexes.max_timestamp
    if newest < 0:
        newest = segment.data.mtime_ms()
    return now_ms - newest > retention_ms


def warn_of_future(segments: LogSegments, config: LogConfig, now_ms: int, warned_of: int) -> int:
    """Log that the first segment is retained for a timestamp in the future; returns its base offset, else -1.

    The segment at `warned_of` is not logged again. The active segment is skipped: clients' clocks may be fast.
    """
    first = segments[0]
    if first is segments.active or not config.deleted_by_age_or_size or config.retention_ms < 0:
        return -1
    if first.indexes.max_timestamp <= now_ms:
        return -1
    if first.base_offset != warned_of:
        logger.warning(
            "%s has a timestamp %d ms ahead of the clock: retention.ms does not delete it or later ones until "
            "%d ms after that; delete records, or set retention.bytes (message.timestamp.after.max.ms bounds new ones)",
            first.data.path,
            first.indexes.max_timestamp - now_ms,
            config.retention_ms,
        )
    return first.base_offset
