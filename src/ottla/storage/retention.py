"""Which segments may go: those below the log start offset, too old, or beyond the size that is kept.

Invariant: only whole segments from the front, and only below the high watermark where replication keeps one.

Left out: deleting them (`log.py`), compaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.storage.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.log import Log


def count_deletable(log: Log, now_ms: int) -> int:
    """How many segments from the front may be deleted at `now_ms`. May read time indexes; raises OSError.

    All of them only when even the active one has outlived its time.
    """
    segments = log.segments
    limit = log.log_end_offset if log.high_watermark is None else log.high_watermark
    config = log.config
    by_policy = config.deleted_by_age_or_size
    excess = log.size_bytes - config.retention_bytes if by_policy and config.retention_bytes >= 0 else 0
    count = 0
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        end_offset = log.log_end_offset if last else segments[number + 1].base_offset
        if end_offset > limit or (last and segment.size_bytes == 0):
            break
        below_start = not last and end_offset <= log.log_start_offset
        oversize = excess >= segment.size_bytes > 0
        if not (below_start or oversize or (by_policy and _outlived(log, segment, now_ms))):
            break
        excess -= segment.size_bytes
        count += 1
    return count


def _outlived(log: Log, segment: Segment, now_ms: int) -> bool:
    retention_ms = log.config.retention_ms
    if retention_ms < 0:
        return False
    if segment is log.active_segment and not segment.size_bytes:
        return False
    segment.load_timestamps()
    newest = segment.max_timestamp
    if newest < 0:
        newest = log.disk.mtime_ms(segment.path)
    return now_ms - newest > retention_ms
