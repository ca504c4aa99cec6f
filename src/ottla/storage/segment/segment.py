"""One segment of a log: a data file, its indexes, and searches in them.

The parts of a segment are objects of their own, which callers use directly: appends and regions are in `data`, index
entries and timestamps in `indexes`, lookups in `search`, aborted transactions in `aborted`. `Segment` changes the files
together: creation, truncation, renaming, closing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.storage.files.descriptors import Descriptor, Folder
from ottla.storage.files.names import DELETED_SUFFIX, KEY_FILTER_SUFFIX, SEGMENT_SUFFIXES, offset_name
from ottla.storage.segment.aborted import SegmentAborted
from ottla.storage.segment.data import SegmentData
from ottla.storage.segment.indexes import SegmentIndexes
from ottla.storage.segment.search import SegmentSearch

KEY_FILTER_UNKNOWN, KEY_FILTER_PRESENT, KEY_FILTER_REFUSED = range(3)
"""States of a segment's key filters: to be checked or built; present; impossible until the segment is another one."""


class Segment:
    """One segment."""

    __slots__ = (
        "_folder",
        "_suffix",
        "aborted",
        "base_offset",
        "created_ms",
        "data",
        "indexes",
        "key_filter_state",
        "search",
    )

    def __init__(
        self,
        folder: Folder,
        base_offset: int,
        size_bytes: int,
        created_ms: int,
        index_interval_bytes: int,
        suffix: str = "",
    ) -> None:
        """Create a segment for existing files; they are opened on first use.

        `suffix` is appended to the names of files that are not part of the log yet.
        """
        self._folder = folder
        self._suffix = suffix
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.data = SegmentData(folder, base_offset, size_bytes, suffix)
        self.aborted = SegmentAborted(folder, base_offset, suffix)
        self.indexes = SegmentIndexes(folder, base_offset, suffix, index_interval_bytes, self.data, self.aborted)
        self.search = SegmentSearch(base_offset, self.data, self.indexes)
        self.key_filter_state = KEY_FILTER_UNKNOWN

    @classmethod
    def create(
        cls, folder: Folder, base_offset: int, created_ms: int, index_interval_bytes: int, suffix: str = ""
    ) -> Segment:
        """Create the files of an empty segment, truncating leftovers of a crash."""
        segment = cls(folder, base_offset, 0, created_ms, index_interval_bytes, suffix)
        segment.data.descriptor.create_empty()
        segment.indexes.create()
        return segment

    def become_inactive(self) -> None:
        """Add the largest timestamp as the last entry of the time index, as Kafka does on roll and close."""
        self.search.load_timestamps()
        indexes = self.indexes
        if indexes.max_timestamp >= 0:
            indexes.end_with(indexes.max_timestamp, indexes.max_timestamp_offset)
        indexes.write()
        self.data.release_reserve()

    def truncate_to_position(self, position: int, offset: int) -> None:
        """Truncate the data at `position`, the start of the batch with `offset`, and the indexes.

        Durable on return: batches that return after a power failure would overlap later ones.
        """
        self._folder.disk.unlink(self._folder.join(offset_name(self.base_offset, KEY_FILTER_SUFFIX)))
        self.key_filter_state = KEY_FILTER_UNKNOWN
        self.data.truncate(position)
        self.indexes.truncate(position, offset)
        self.search.load_timestamps()
        self.search.load_first_timestamp()

    def mark_deleted(self) -> list[str]:
        """Rename the files so that no start takes them for a segment; returns the new paths, for unlinking."""
        return self._rename(self._suffix + DELETED_SUFFIX, (self.data.descriptor,))

    def take_suffix(self, suffix: str) -> None:
        """Rename the files, the data file first: to `suffix` instead of the present one. Raises OSError."""
        aborted = self.aborted.index
        descriptors = [self.data.descriptor, *self.indexes.descriptors()]
        self._rename(suffix, descriptors if aborted is None else [*descriptors, aborted.descriptor])
        self._suffix = self.indexes.suffix = self.aborted.suffix = suffix

    def _rename(self, suffix: str, descriptors: Sequence[Descriptor]) -> list[str]:
        """Return the paths of the renamed files, and update their descriptors."""
        paths = []
        for kind in SEGMENT_SUFFIXES:
            name, renamed = (
                offset_name(self.base_offset, kind + self._suffix),
                offset_name(self.base_offset, kind + suffix),
            )
            path = self._folder.join(renamed)
            try:
                self._folder.disk.rename(self._folder.join(name), path)
            except FileNotFoundError:
                continue
            paths.append(path)
            for descriptor in descriptors:
                if descriptor.name == name:
                    descriptor.renamed(renamed)
        return paths

    def close(self) -> None:
        """Close the files; the data file stays open for pinned regions."""
        self.data.descriptor.close()
        self.indexes.close()
        self.aborted.close()
