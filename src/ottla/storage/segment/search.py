"""Searches in a segment: batches by offset, position and timestamp.

An index names a batch at or before the target, and a scan of batch headers finds it from there. A search trusts only
index entries that fit their batch, and repeats itself on rebuilt indexes otherwise.

Many consumers of one partition search for the same batches, so the last results of a log directory are kept
(`Descriptors.places`): a batch stays where it is until its file is truncated.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.record.batch import LOG_OVERHEAD, MAGIC_V2
from ottla.storage.segment.data import SegmentData
from ottla.storage.segment.index import IndexCorruption
from ottla.storage.segment.indexes import INDEX_DAMAGE, SegmentIndexes
from ottla.storage.segment.outlines import (
    BATCH_OUTLINE,
    NO_BATCH,
    NO_TIMESTAMP,
    OUTLINE_SIZE,
    SCAN_BYTES,
    UNLOADED,
    Outline,
    OutlineScan,
)

WORTH_LEAVING_BYTES = 16 * 1024
"""A shorter beginning of a batch is cheaper to send than to find."""


class SegmentSearch:
    """Searches in one segment."""

    __slots__ = ("_base_offset", "_data", "_indexes")

    def __init__(self, base_offset: int, data: SegmentData, indexes: SegmentIndexes) -> None:
        self._base_offset = base_offset
        self._data = data
        self._indexes = indexes

    def find_offset(self, offset: int) -> Outline | None:
        """Return the first batch with a last offset of at least `offset`, or None."""
        data = self._data
        descriptors = data.descriptors
        place = (data.descriptor, data.truncation_count, offset)
        outline: Outline | None = descriptors.places.get(place)
        if outline is None:
            outline = self._indexes.repairing(lambda: self._find(offset, UNLOADED))
            if outline is not None:
                descriptors.remember(place, outline)
        return outline

    def leave_cut_batch(self, position: int, length: int) -> int:
        """Return how much to read of the `length` bytes from the batch at `position` on, which contain it whole.

        A large batch that would be cut at their end is omitted if the index has it: a client would discard its
        beginning and fetch it next. Then that fetch needs no search.
        """
        end = position + length
        data = self._data
        place = (data.descriptor, data.truncation_count, -1 - end)
        found = data.descriptors.places.get(place)
        if found is None:
            found = self._batch_across(end)
            if found is None:
                return length
            data.descriptors.remember(place, found)
        cut = found[0]
        return length if cut <= position or end - cut < WORTH_LEAVING_BYTES else cut - position

    def _batch_across(self, end: int) -> Outline | None:
        """Return the batch that contains the byte before `end` and the one at it, if the index has it and it is large.

        `NO_BATCH` if the index has none, None if that is unknown.
        """
        try:
            last_offset, cut = self._indexes.offset.lookup_position(end)
        except INDEX_DAMAGE:  # logged and repaired by the next search for an offset
            return None
        if end - cut < WORTH_LEAVING_BYTES:
            return NO_BATCH
        header = self._data.descriptor.read(OUTLINE_SIZE, cut)
        if len(header) < OUTLINE_SIZE:
            return None
        base_offset, batch_length, magic, last_delta, max_timestamp = BATCH_OUTLINE.unpack(header)
        size = batch_length + LOG_OVERHEAD
        if magic < MAGIC_V2 or base_offset + last_delta != last_offset or cut + size <= end:
            return NO_BATCH
        outline = cut, size, last_offset, max_timestamp
        data = self._data
        data.descriptors.remember((data.descriptor, data.truncation_count, base_offset), outline)
        return outline

    def offset_behind(self, position: int) -> int | None:
        """Return an offset close to `position` that no batch before it has; None if the index has none."""
        return self._indexes.repairing(lambda: self._indexes.offset.offset_behind(position))

    def _find(self, offset: int, timestamp: int) -> Outline | None:
        """Return the first batch that reaches both. Raises IndexCorruption and OSError."""
        return self._scan_from(self._indexes.offset.lookup(offset), offset, timestamp)

    def _scan_from(self, entry: tuple[int, int], offset: int, timestamp: int) -> Outline | None:
        """Search from the batch of an entry on, which must exist. Raises IndexCorruption and OSError."""
        last_offset, position = entry
        if not 0 <= position < max(self._data.size_bytes, 1):
            raise IndexCorruption(f"{self._data.path}: an entry of the index points to {position}")
        scan = OutlineScan(self._data.descriptor, position, self._data.size_bytes)
        for outline in scan:
            found_position, _, found_offset, found_timestamp = outline
            if position and found_position == position and found_offset != last_offset:
                break
            if found_offset >= offset and found_timestamp >= timestamp:
                return outline
        else:
            if not position or scan.position > position:
                return None
        raise IndexCorruption(f"{self._data.path}: an entry of the index names no batch at {position}")

    def find_timestamp(self, timestamp: int, from_offset: int) -> Outline | None:
        """Return the first batch that reaches both `timestamp` and `from_offset`, or None."""

        def find() -> Outline | None:
            entry = self._indexes.time.lookup(timestamp)
            self._check_time_entry(entry)
            _, older_until = entry
            position = self._indexes.offset.lookup(max(older_until, from_offset))
            return self._scan_from(position, from_offset, timestamp)

        return self._indexes.repairing(find)

    def _check_time_entry(self, entry: tuple[int, int]) -> None:
        """Raises IndexCorruption unless a batch at the entry's offset has its timestamp."""
        timestamp, offset = entry
        if timestamp == NO_TIMESTAMP:
            return
        outline = self._find(offset, UNLOADED) if offset >= self._base_offset else None
        _, _, _, found = outline or NO_BATCH
        if found != timestamp:
            raise IndexCorruption(
                f"{self._data.path}: no batch at offset {offset} has the timestamp of the index, {timestamp}"
            )

    def outline_at(self, position: int) -> Outline | None:
        """Return the batch that starts at `position`; None at the end."""
        return next(OutlineScan(self._data.descriptor, position, self._data.size_bytes), None)

    def end_before(self, position: int, offset: int) -> int:
        """Return the next offset behind the batches before `position`, and the start of the first that reaches
        `offset`.
        """
        _, start = self._indexes.repairing(lambda: self._indexes.offset.lookup(offset - 1))
        end = self._base_offset
        for _, _, last_offset, _ in OutlineScan(self._data.descriptor.file(), start, position):
            end = last_offset + 1
        return end

    def read_batch(self, outline: Outline) -> bytes:
        """A whole batch."""
        position, size, _, _ = outline
        return self._data.descriptor.read(size, position)

    def load_timestamps(self) -> None:
        """Find the largest timestamp: from the time index up to its last entry, from a scan for the rest.

        Also prepares the active segment for appends.
        """
        if self._indexes.max_timestamp != UNLOADED:
            return
        try:
            timestamp, offset = self._indexes.time.last_entry()
            self._check_time_entry((timestamp, offset))
            last_entry = self._indexes.offset.last_entry()
            last_offset, position = last_entry
            self._scan_from(last_entry, last_offset, UNLOADED)
        except INDEX_DAMAGE:
            self._indexes.rebuild()
            return
        for _, _, last_offset, max_timestamp in OutlineScan(self._data.descriptor, position, self._data.size_bytes):
            if max_timestamp > timestamp:
                timestamp, offset = max_timestamp, last_offset
        self._indexes.resume(self._indexes.offset.entry_count, self._data.size_bytes - position)
        self._indexes.max_timestamp = timestamp
        self._indexes.max_timestamp_offset = offset

    def take_up(self, outlines: Sequence[Outline]) -> None:
        """Like `load_timestamps`, for a small segment that consists of these batches; leaves the indexes closed."""
        indexes = self._indexes
        try:
            count, last_entry, time_entry = indexes.last_entries()
            self._check_entries(last_entry, time_entry, outlines)
        except INDEX_DAMAGE:
            indexes.rebuild()
            return
        timestamp, offset = time_entry
        _, position = last_entry
        for start, _, last_offset, max_timestamp in outlines:
            if start >= position and max_timestamp > timestamp:
                timestamp, offset = max_timestamp, last_offset
        indexes.resume(count, self._data.size_bytes - position)
        indexes.max_timestamp = timestamp
        indexes.max_timestamp_offset = offset

    def _check_entries(
        self, last_entry: tuple[int, int], time_entry: tuple[int, int], outlines: Sequence[Outline]
    ) -> None:
        """Raises IndexCorruption unless the last entries of both indexes fit the batches."""
        last_offset, position = last_entry
        if position and not any(each[0] == position and each[2] == last_offset for each in outlines):
            raise IndexCorruption(f"{self._data.path}: an entry of the index names no batch at {position}")
        timestamp, offset = time_entry
        found = next((each[3] for each in outlines if each[2] >= offset), NO_TIMESTAMP)
        if timestamp != NO_TIMESTAMP and (offset < self._base_offset or found != timestamp):
            raise IndexCorruption(
                f"{self._data.path}: no batch at offset {offset} has the timestamp of the index, {timestamp}"
            )

    def load_first_timestamp(self) -> int:
        """Largest timestamp of the first batch, the base of time-based rolling; -1 if it has none.

        Loads the other timestamps before: an append needs this one, and adds to those.
        """
        if self._indexes.first_timestamp == UNLOADED:
            self.load_timestamps()
            self._indexes.ensure_open()
            _, _, _, self._indexes.first_timestamp = self.outline_at(0) or NO_BATCH
        return self._indexes.first_timestamp

    def find_end(self) -> tuple[int, int, int]:
        """Return (next offset, position) after the last whole batch, and its position, by a scan from the last index
        entry; in a small segment from its beginning, without an index.
        """
        next_offset = self._base_offset
        size_bytes = self._data.size_bytes
        if not size_bytes:
            return next_offset, 0, 0
        last_position = end = 0 if size_bytes <= SCAN_BYTES else self._indexes.offset.last_position()
        for position, size, last_offset, _ in OutlineScan(self._data.descriptor.file(), end, size_bytes):
            next_offset = last_offset + 1
            last_position, end = position, position + size
        return next_offset, end, last_position
