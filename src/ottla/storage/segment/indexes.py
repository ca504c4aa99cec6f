"""Offset and time index of a segment, opened on first use and rebuilt when damaged, and the segment's timestamps.

Invariant: `max_timestamp` is the largest of all batches in the segment, or `UNLOADED` until it is needed
(`SegmentSearch.load_timestamps`). It is loaded before the first timestamp, which the first append to a segment of an
earlier process needs; so no batch is noted in an index that was not opened.

The files are in `index`, searches in `search`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TypeVar

from ottla.common.logs import RATE_LIMITED
from ottla.storage.files.descriptors import Descriptor, Folder
from ottla.storage.files.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, offset_name
from ottla.storage.files.off_loop import WouldBlock
from ottla.storage.segment.aborted import SegmentAborted
from ottla.storage.segment.data import SegmentData
from ottla.storage.segment.index import IndexCorruption, OffsetIndex, TimeIndex
from ottla.storage.segment.outlines import NO_TIMESTAMP, UNLOADED, OutlineScan

logger = logging.getLogger(__name__)

T = TypeVar("T")

INDEX_DAMAGE = (IndexCorruption, FileNotFoundError)


class SegmentIndexes:
    """Indexes of one segment."""

    __slots__ = (
        "_aborted",
        "_base_offset",
        "_bytes_since_entry",
        "_data",
        "_folder",
        "_interval_bytes",
        "_offset",
        "_time",
        "entry_count",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "suffix",
    )

    def __init__(
        self,
        folder: Folder,
        base_offset: int,
        suffix: str,
        interval_bytes: int,
        data: SegmentData,
        aborted: SegmentAborted,
    ) -> None:
        """`aborted` has the segment's third index, which is written with these."""
        self._folder = folder
        self._base_offset = base_offset
        self.suffix = suffix
        """Appended to the names of files that are created or opened."""
        self._interval_bytes = interval_bytes
        self._data = data
        self._aborted = aborted
        self._offset: OffsetIndex | None = None
        self._time: TimeIndex | None = None
        self._bytes_since_entry = 0
        self.entry_count = 0
        self.first_timestamp = NO_TIMESTAMP if data.size_bytes == 0 else UNLOADED
        self.max_timestamp = NO_TIMESTAMP if data.size_bytes == 0 else UNLOADED
        self.max_timestamp_offset = base_offset

    def create(self) -> None:
        """Create empty files, truncating existing ones."""
        self._offset = OffsetIndex(self._folder, self._base_offset, self.suffix)
        self._offset.create()
        self._time = TimeIndex(self._folder, self._base_offset, self.suffix)
        self._time.create()

    @property
    def offset(self) -> OffsetIndex:
        if self._offset is None:
            self._open()
        index = self._offset
        if index is None:
            raise IndexCorruption(f"{self._data.path}: no offset index")
        return index

    @property
    def time(self) -> TimeIndex:
        if self._time is None:
            self._open()
        index = self._time
        if index is None:
            raise IndexCorruption(f"{self._data.path}: no time index")
        return index

    def _open(self) -> None:
        index = OffsetIndex(self._folder, self._base_offset, self.suffix)
        time_index = TimeIndex(self._folder, self._base_offset, self.suffix)
        try:
            index.open()
            if index.last_position() >= max(self._data.size_bytes, 1):
                raise IndexCorruption(f"{index.path} points beyond the end of its segment")
            time_index.open()
        except WouldBlock:
            index.close()
            time_index.close()
            raise
        except (FileNotFoundError, IndexCorruption):
            index.close()
            time_index.close()
            self.rebuild()
            return
        self._offset = index
        self._time = time_index

    def last_entries(self) -> tuple[int, tuple[int, int], tuple[int, int]]:
        """Return the number of entries of the offset index of a small segment, and the last entry of each index.

        They are read at once, and not kept: a start checks tens of thousands, most of which have no use for long.
        Raises IndexCorruption, OSError.
        """
        index = OffsetIndex(self._folder, self._base_offset, self.suffix)
        time_index = TimeIndex(self._folder, self._base_offset, self.suffix)
        try:
            index.load()
            time_index.load()
            return index.entry_count, index.last_entry(), time_index.last_entry()
        finally:
            index.close()
            time_index.close()

    def ensure_open(self) -> None:
        """Open both indexes, or rebuild them, before an append needs them. Raises OSError."""
        if self._offset is None or self._time is None:
            self._open()

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Add a batch at `position` to the indexes, if an entry is due.

        Returns whether the indexes were rebuilt: then they contain everything written, also behind that batch.
        """
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self._bytes_since_entry > self._interval_bytes:
            try:
                self.offset.append(last_offset, position)
                self.time.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            except INDEX_DAMAGE:
                self.rebuild()  # the log already contains this batch
                return True
            self._bytes_since_entry = 0
            self.entry_count += 1
        self._bytes_since_entry += size
        return False

    def resume(self, entry_count: int, bytes_since_entry: int) -> None:
        """Prepare for appends, with the number of entries, and the bytes of the batches behind the last one."""
        self.entry_count = entry_count
        self._bytes_since_entry = bytes_since_entry

    def repairing(self, use: Callable[[], T]) -> T:
        """Call `use` on the indexes, and again on rebuilt ones if they are damaged or removed.

        A disk error or another process may have changed them: a search trusts only entries that fit their batch.
        """
        try:
            return use()
        except INDEX_DAMAGE:
            self.rebuild()
            return use()

    def write(self) -> None:
        """Write index entries that are only in memory to the files."""
        self.repairing(self._write)

    def _write(self) -> None:
        if self._offset is not None:
            self._offset.write_pending()
        if self._time is not None:
            self._time.write_pending()
        self._aborted.write_pending()

    @property
    def is_written(self) -> bool:
        """Whether the files of offset and time index contain all entries."""
        return all(index is None or index.is_written for index in (self._offset, self._time))

    def to_sync(self) -> list[Descriptor]:
        """Return the index files with volatile entries, all of them written; raises OSError."""
        return self.repairing(self._dirty)

    def _dirty(self) -> list[Descriptor]:
        self._write()
        dirty = [index.descriptor for index in self._opened() if index.dirty]
        for descriptor in dirty:
            descriptor.file()  # raises if it no longer exists
        self._aborted.add_dirty(dirty)
        return dirty

    def synced(self) -> None:
        """A sync of `to_sync` begins; if it fails, the log is not used any more."""
        for index in (*self._opened(), self._aborted.index):
            if index is not None:
                index.dirty = False

    def _opened(self) -> list[OffsetIndex | TimeIndex]:
        return [index for index in (self._offset, self._time) if index is not None]

    def descriptors(self) -> list[Descriptor]:
        """Return those of the open files."""
        return [index.descriptor for index in self._opened()]

    def truncate(self, position: int, offset: int) -> None:
        """Truncate both for data that ends at `position`, before `offset`; the timestamps have to be loaded again."""
        self.repairing(lambda: self._truncate(position, offset))
        self.first_timestamp = UNLOADED if position else NO_TIMESTAMP
        self.max_timestamp = UNLOADED if position else NO_TIMESTAMP
        self.max_timestamp_offset = self._base_offset

    def _truncate(self, position: int, offset: int) -> None:
        index = self.offset
        index.truncate_to_offset(offset)
        self.time.truncate_to_offset(offset)
        self._bytes_since_entry = position - index.last_position()
        self.entry_count = index.entry_count

    def end_with(self, timestamp: int, offset: int) -> None:
        """Add the largest timestamp as the last entry of the time index."""
        self.repairing(lambda: self.time.maybe_append(timestamp, offset))

    def are_blank(self) -> bool:
        """Return whether both files exist and are empty. Raises OSError."""
        disk = self._folder.disk
        kinds = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        try:
            return not any(
                disk.size(self._folder.join(offset_name(self._base_offset, kind + self.suffix))) for kind in kinds
            )
        except FileNotFoundError:
            return False

    def begin_rebuild(self) -> None:
        """Empty both indexes; the caller scans the segment and adds each batch again.

        Files that are empty already are opened when the first entry is due.
        """
        self.close()
        if self.are_blank():
            self._offset = self._time = None
        else:
            self.create()
        self._bytes_since_entry = 0
        self.entry_count = 0
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self._base_offset

    def rebuild(self) -> None:
        """Rebuild both indexes from the batch headers, which are trusted; `recovery` is for untrusted ones.

        Rare, and done in one step: it blocks even if the caller must not.
        """
        logger.warning("the indexes of %s are damaged or missing; rebuilding them", self._data.path, extra=RATE_LIMITED)
        descriptors = self._folder.descriptors
        known, descriptors.known = descriptors.known, None
        try:
            self.begin_rebuild()
            scan = OutlineScan(self._data.descriptor, 0, self._data.size_bytes)
            for position, size, last_offset, max_timestamp in scan:
                self.note_batch(position, size, last_offset, max_timestamp)
            self.finish_rebuild()
        finally:
            descriptors.known = known

    def finish_rebuild(self, *, is_active: bool = False) -> None:
        """Write the indexes after the last batch. On a full disk the entries stay in memory until a flush writes
        them. An active segment that needed no entry keeps empty files until it is rolled or closed.
        """
        if self.max_timestamp >= 0 and not (is_active and self._time is None):
            self.time.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        with contextlib.suppress(OSError):
            self.write()

    def close(self) -> None:
        """Close the files."""
        for index in self._opened():
            index.close()
