"""Which segments may go: those below the log start offset, too old, or beyond the size that is kept.

Invariant: only whole segments from the front, and only below the high watermark where replication keeps one.

Left out: deleting them (`deletion.py`), compaction.
"""

from __future__ import annotations

from ottla.storage.log_config import LogConfig
from ottla.storage.log_segments import LogOffsets, LogSegments
from ottla.storage.segment import Segment


def count_deletable(segments: LogSegments, offsets: LogOffsets, config: LogConfig, now_ms: int) -> int:
    """How many segments from the front may be deleted at `now_ms`. May read time indexes; raises OSError.

    All of them only when even the active one has outlived its time.
    """
    limit = offsets.committed_end
    by_policy = config.deleted_by_age_or_size
    excess = segments.size_bytes - config.retention_bytes if by_policy and config.retention_bytes >= 0 else 0
    count = 0
    for number, segment in enumerate(segments):
        last = segment is segments.active
        end_offset = offsets.log_end_offset if last else segments.base_offsets[number + 1]
        if end_offset > limit or (last and segment.size_bytes == 0):
            break
        below_start = not last and end_offset <= offsets.log_start_offset
        oversize = excess >= segment.size_bytes > 0
        if not (below_start or oversize or (by_policy and _outlived(segment, config.retention_ms, now_ms))):
            break
        excess -= segment.size_bytes
        count += 1
    return count


def _outlived(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    if retention_ms < 0:
        return False
    segment.load_timestamps()
    newest = segment.max_timestamp
    if newest < 0:
        newest = segment.mtime_ms()
    return now_ms - newest > retention_ms
