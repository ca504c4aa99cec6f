"""Ranges of a log's offsets in which no record has one of some keys, by the key filters of closed segments.

A range is a proof: all records in it are read by the filters. Segments without filters, the active one and the parts of
blocks at both ends are in no range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.common.platform.disk import Disk
from ottla.storage.files.names import KEY_FILTER_SUFFIX, offset_name
from ottla.storage.files.off_loop import Known, WouldBlock
from ottla.storage.log.log import Log
from ottla.storage.segment.key_filter import KeyFreeRange, SegmentIdentity, join, read_key_filters
from ottla.storage.segment.segment import KEY_FILTER_PRESENT, KEY_FILTER_REFUSED, KEY_FILTER_UNKNOWN, Segment

MAX_SEGMENTS = 64
"""Segments that one call looks at."""


class KeyQuery(NamedTuple):
    """Keys to look for from `start` to before `end`. Without `with_transactions`, the reader skips aborted records."""

    keys: Sequence[bytes]
    start: int
    end: int
    with_transactions: bool


class KeyFreeRanges(NamedTuple):
    """Ranges without the keys, in order, up to `searched_end`; the offsets behind it were not looked at."""

    ranges: Sequence[KeyFreeRange]
    searched_end: int


def find_key_free(log: Log, query: KeyQuery, known: Known) -> KeyFreeRanges:
    """The ranges of a log. Raises WouldBlock for each segment whose filters are not in `known`."""
    found: list[KeyFreeRange] = []
    segments = log.segments
    first = segments.number_of(query.start)
    for number in range(first, len(segments)):
        segment = segments[number]
        if segment is segments.active or segment.base_offset >= query.end:
            break
        if number - first >= MAX_SEGMENTS:
            return KeyFreeRanges(found, segment.base_offset)
        if segment.key_filter_state == KEY_FILTER_REFUSED:
            continue
        for each in _ranges_of(log, segment, segments.base_offsets[number + 1], query, known):
            join(found, each)
    return KeyFreeRanges(found, query.end)


def _ranges_of(log: Log, segment: Segment, end_offset: int, query: KeyQuery, known: Known) -> Sequence[KeyFreeRange]:
    size_bytes, cuts = segment.data.size_bytes, segment.data.truncation_count
    key = (KEY_FILTER_SUFFIX, segment.base_offset, end_offset, size_bytes, cuts)
    if key not in known:
        disk, folder = log.folder.disk, log.folder
        paths = segment.data.path, folder.join(offset_name(segment.base_offset, KEY_FILTER_SUFFIX))
        raise WouldBlock(key, lambda: _read(disk, paths, (segment.base_offset, end_offset, size_bytes), query))
    outcome = known[key]
    if isinstance(outcome, Exception) and not isinstance(outcome, OSError):
        raise outcome
    if outcome is None or isinstance(outcome, OSError):
        if segment.key_filter_state == KEY_FILTER_PRESENT:  # it was removed or damaged: build it again
            segment.key_filter_state = KEY_FILTER_UNKNOWN
        return ()
    ranges: Sequence[KeyFreeRange] = outcome
    return ranges


def _read(
    disk: Disk, paths: tuple[str, str], numbers: tuple[int, int, int], query: KeyQuery
) -> list[KeyFreeRange] | None:
    """In the pool. Raises OSError."""
    segment_path, path = paths
    filters = read_key_filters(disk, path, SegmentIdentity(*numbers, disk.mtime_ms(segment_path)))
    if filters is None:
        return None
    return filters.without(query.keys, query.start, query.end, with_transactions=query.with_transactions)
