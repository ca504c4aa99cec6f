"""Reads of a log: batches from an offset on, and offsets by time. Hot: `read` touches headers and counters only.

A read finds the position of the bytes and pins their file; it does not read them. At the tail the position is known
(`LogSegments.recent`), elsewhere it is found by the index and a scan of headers.

Read limits are in `replica`, lookups by time in `lookup`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.storage.files.descriptors import Descriptors
from ottla.storage.files.off_loop import Known
from ottla.storage.log.log_segments import LogOffsets, LogSegments
from ottla.storage.log.lookup import FoundRecord, find_max_timestamp, find_timestamp
from ottla.storage.segment.health import LogHealth
from ottla.storage.segment.outlines import Outline
from ottla.storage.segment.results import ReadResult
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.log.batch_extents import BatchExtent

T = TypeVar("T")


class LogReader:
    """Reads of one log."""

    __slots__ = ("_descriptors", "_health", "_offsets", "_segments")

    def __init__(self, segments: LogSegments, offsets: LogOffsets, descriptors: Descriptors, health: LogHealth) -> None:
        self._segments = segments
        self._offsets = offsets
        self._descriptors = descriptors
        self._health = health

    def read(
        self, offset: int, max_bytes: int, *, max_offset: int, min_one_batch: bool = True, known: Known | None = None
    ) -> ReadResult:
        """Return batches from the one that contains `offset` on, below `max_offset`, within one segment.

        At most `max_bytes`, where a small last batch may be cut; but the first is returned whole with `min_one_batch`,
        and without it nothing is returned if it doesn't fit. The caller releases `records`. Raises KafkaError
        OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, and, with `known`, `WouldBlock` instead of blocking.
        """
        offsets = self._offsets
        end_offset = offsets.log_end_offset
        if offset < offsets.log_start_offset or offset > end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self._health.name} is outside {offsets.log_start_offset} to {end_offset}",
            )
        if max_offset > end_offset:
            max_offset = end_offset
        segments = self._segments
        segment = segments.active
        if offset >= max_offset or (max_bytes <= 0 and not min_one_batch):
            return ReadResult(offset, segment.base_offset, 0, None, 0)
        descriptors = self._descriptors
        descriptors.known = known
        try:
            position = segments.recent.get(offset, -1)
            first_size = 0
            if position < 0:
                located = self._locate(offset)
                if located is None:
                    return ReadResult(offset, segment.base_offset, 0, None, 0)
                segment, (position, first_size, _, _) = located
            if max_offset == end_offset and segment is segments.active:
                end_position = segment.data.size_bytes
            else:
                end_position = self._end_position(segment, max_offset)
            length = sent = end_position - position
            if length > max_bytes:
                if not first_size:
                    first = segment.search.outline_at(position)
                    first_size = first[1] if first is not None else length
                if first_size <= max_bytes:
                    length = max_bytes
                    sent = segment.search.leave_cut_batch(position, max_bytes)
                else:
                    length = sent = first_size if min_one_batch else 0
            if length <= 0:
                return ReadResult(offset, segment.base_offset, position, None, 0)
            return ReadResult(offset, segment.base_offset, position, segment.data.region(position, sent), length)
        except OSError as error:
            raise self._health.read_error(error) from error
        finally:
            descriptors.known = None

    def _locate(self, offset: int) -> tuple[Segment, Outline] | None:
        """Return segment and batch of the first offset at or after `offset`; None at the end. Raises OSError."""
        for segment in self._segments.holding(offset):
            outline = segment.search.find_offset(offset)
            if outline is not None:
                return segment, outline
        return None

    def _end_position(self, segment: Segment, max_offset: int) -> int:
        """Return the end position of the batches below `max_offset` in `segment`, if that is not the log end."""
        segments = self._segments
        if segment is segments.active:
            position = segments.recent.get(max_offset, -1)
            if position >= 0:
                return position
        elif segments.base_offsets[segments.number_of(segment.base_offset) + 1] <= max_offset:
            return segment.data.size_bytes
        outline = segment.search.find_offset(max_offset)
        return segment.data.size_bytes if outline is None else outline[0]

    def extents(
        self, found: ReadResult, *, end_offset: int, max_batches: int, known: Known | None = None
    ) -> list[BatchExtent]:
        """Return the whole batches in `found.records` that begin before `end_offset`, at most `max_batches`.

        Reads headers only. Raises KafkaError KAFKA_STORAGE_ERROR, and, with `known`, `WouldBlock` instead of blocking.
        """
        from ottla.storage.log.batch_extents import scan_extents  # imported here: only share groups need it

        return self._looking(known, lambda: scan_extents(self._segments, found, end_offset, max_batches))

    # -- offsets by time ---------------------------------------------------------------------------------------------

    def lookup_timestamp(self, timestamp: int, known: Known | None = None) -> FoundRecord | None:
        """Return the first record with a timestamp at or after `timestamp`, or None.

        Reads and may decompress a batch. Raises KafkaError, and, with `known`, `WouldBlock` instead of blocking.
        """
        start_offset = self._offsets.log_start_offset
        return self._looking(known, lambda: find_timestamp(self._segments, start_offset, timestamp, known))

    def max_timestamp(self, known: Known | None = None) -> FoundRecord | None:
        """Return the first record with the largest timestamp (KIP-734); None if empty. Raises as the method above."""
        start_offset = self._offsets.log_start_offset
        return self._looking(known, lambda: find_max_timestamp(self._segments, start_offset, known))

    def _looking(self, known: Known | None, find: Callable[[], T]) -> T:
        descriptors = self._descriptors
        descriptors.known = known
        try:
            return find()
        except OSError as error:
            raise self._health.read_error(error) from error
        finally:
            descriptors.known = None
