"""Removal of segments from a log, with all their files.

Invariant: a segment leaves the set before its files change, so no lookup finds a position in a removed one; pinned
regions still have their bytes. Files are renamed first and removed later.

The selection of segments is in `retention` and `truncation`.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.storage.files.descriptors import Folder
from ottla.storage.log.flush import LogFlush
from ottla.storage.log.log_segments import LogSegments
from ottla.storage.log.producer_files import remove_producers
from ottla.storage.log.producer_state import ProducerState
from ottla.storage.segment.results import LogEvents
from ottla.storage.segment.segment import Segment


def delete_segments(
    gone: Collection[Segment],
    delay_ms: int,
    *,
    segments: LogSegments,
    producers: ProducerState,
    folder: Folder,
    flush: LogFlush,
    events: LogEvents,
) -> None:
    """Remove `gone` from the log; the files are renamed now and removed after `delay_ms`. Raises OSError."""
    segments.replace(gone, ())
    paths = []
    for segment in gone:
        paths += segment.mark_deleted()
        segment.close()
    remove_producers(producers, folder, {segment.base_offset for segment in gone})
    flush.names_changed()
    events.unlink_later(paths, delay_ms)
