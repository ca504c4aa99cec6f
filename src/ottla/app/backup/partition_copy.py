"""Copy of one partition's log up to an end that was measured while its leader appended.

The log is the segments before the last measured one, and the measured bytes of that one. Retention may remove segments
at its start meanwhile, and these are then left out. Any other change (compaction, truncation, a recreated topic)
invalidates the copy: a cleaned segment lacks records that are only replaced behind the measured end.

The files of compacted partitions are opened when they are measured, so that a cleaner, which replaces files, does not
affect the copy.

Invariant: `check` succeeds only if every copied segment was still the measured file when it was copied. Compaction
replaces segments by new files, so an inode that stays proves that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from ottla.app.adoption.partitions import segment_bases
from ottla.app.backup.files import READ_FLAGS, SourceChanged, copy_file
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.disk import Disk
from ottla.storage.files import names
from ottla.storage.files.checkpoints import CheckpointCorruption, read_partition_metadata
from ottla.storage.segment.outlines import OutlineScan
from ottla.storage.segment.transaction_index import ENTRY

_INDEXES = (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TRANSACTION_INDEX_SUFFIX)
_LAST_OFFSET = 3


class SegmentFile(NamedTuple):
    """The data file of a segment."""

    base_offset: int
    inode: int
    size: int


def list_segments(path: str, known: Sequence[SegmentFile] = ()) -> list[SegmentFile]:
    """The segments of a partition directory, ascending; the last one may be growing.

    Segments before the last of `known` are not examined again. Raises SourceChanged without a segment or during a
    cleaner swap, and OSError.
    """
    try:
        listing = os.listdir(path)
        if any(name.endswith(names.LOG_SUFFIX + names.SWAP_SUFFIX) for name in listing):
            raise SourceChanged
        bases = sorted(base for name in listing if (base := names.parse_offset(name, names.LOG_SUFFIX)) is not None)
        complete = {segment.base_offset: segment for segment in known[:-1]}
        # After the listing: a segment that another one follows in it has its final size.
        found = [complete.get(base) or _segment_file(path, base) for base in bases]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceChanged from error
    if not found:
        raise SourceChanged
    return found


def _segment_file(path: str, base_offset: int) -> SegmentFile:
    status = os.stat(os.path.join(path, names.offset_name(base_offset, names.LOG_SUFFIX)))
    return SegmentFile(base_offset, status.st_ino, status.st_size)


class PartitionCopy:
    """One partition in the backup."""

    __slots__ = ("_copied", "_opened", "cut", "end_offset", "key", "shared_bytes", "source", "target")

    def __init__(self, key: TopicPartition, source: str, target: str) -> None:
        """`source` is the directory of the leader's replica, `target` that in the backup."""
        self.key = key
        self.source = source
        self.target = target
        self.cut: list[SegmentFile] = []
        self.end_offset = 0
        self.shared_bytes = 0
        self._copied: dict[int, SegmentFile] = {}
        self._opened: dict[str, int] = {}
        """Descriptors of the measured files by name, from `open_files` to `close_files`."""

    def measure(self) -> None:
        """Take the present end of the log. Raises SourceChanged, OSError."""
        self.cut = list_segments(self.source, self.cut)

    def is_at_end(self) -> bool:
        """Return whether nothing was appended since `measure`. Raises SourceChanged, OSError."""
        return list_segments(self.source, self.cut) == self.cut

    def open_files(self) -> None:
        """Open the measured files, so that the copy does not depend on their names. Raises SourceChanged, OSError.

        No segment may have begun since the measurement: a cleaner pass after that could remove a record of the measured
        files that is replaced behind their end.
        """
        try:
            for segment in self.cut:
                for suffix in names.SEGMENT_SUFFIXES:
                    self._open(segment, suffix)
            if list_segments(self.source)[-1].base_offset != self.cut[-1].base_offset:
                raise SourceChanged
        except FileNotFoundError as error:
            raise SourceChanged from error

    def _open(self, segment: SegmentFile, suffix: str) -> None:
        name = names.offset_name(segment.base_offset, suffix)
        try:
            descriptor = os.open(os.path.join(self.source, name), READ_FLAGS)
        except FileNotFoundError:
            if suffix == names.LOG_SUFFIX:
                raise
            return
        self._opened[name] = descriptor
        status = os.fstat(descriptor)
        if suffix == names.LOG_SUFFIX and (status.st_ino != segment.inode or status.st_size < segment.size):
            raise SourceChanged

    def close_files(self) -> None:
        """Close the files of `open_files`; idempotent."""
        while self._opened:
            os.close(self._opened.popitem()[1])

    def copy_log(self, disk: Disk) -> None:
        """Copy segments that are not copied yet, and the measured part of the last. Raises SourceChanged, OSError."""
        os.makedirs(self.target, exist_ok=True)
        *complete, last = self.cut
        valid = {segment.base_offset for segment in complete if self._copied.get(segment.base_offset) == segment}
        for base_offset in segment_bases(disk, self.target):
            if base_offset not in valid:
                self._drop(base_offset)
        for segment in complete:
            if segment.base_offset not in self._copied:
                if not self._copy_segment(segment, _INDEXES):
                    continue
                self._copied[segment.base_offset] = segment
        if not self._copy_segment(last, ()):
            raise SourceChanged
        self.end_offset = self._cut_to_batches(disk, last)

    def _copy_segment(self, segment: SegmentFile, indexes: Sequence[str]) -> bool:
        """Copy the files of a segment; returns False if retention has removed it."""
        name = names.offset_name(segment.base_offset, names.LOG_SUFFIX)
        try:
            with self._source_file(name) as source:
                if os.fstat(source).st_ino != segment.inode:
                    raise SourceChanged
                if copy_file(source, os.path.join(self.target, name), segment.size):
                    self.shared_bytes += segment.size
        except FileNotFoundError as error:
            if list_segments(self.source)[0].base_offset > segment.base_offset:
                return False
            raise SourceChanged from error
        for suffix in indexes:
            self._copy_whole(names.offset_name(segment.base_offset, suffix))
        return True

    def _copy_whole(self, name: str) -> None:
        """Copy a file, if it exists: a start rebuilds indexes. Raises SourceChanged, OSError."""
        with suppress(FileNotFoundError), self._source_file(name) as source:
            copy_file(source, os.path.join(self.target, name), os.fstat(source).st_size)

    @contextmanager
    def _source_file(self, name: str) -> Iterator[int]:
        """The descriptor of a source file, closed at the end unless it is in use. Raises FileNotFoundError."""
        opened = self._opened.get(name)
        if opened is None and self._opened and name.endswith(names.SEGMENT_SUFFIXES):
            raise FileNotFoundError(name)  # one of that name belongs to another segment
        descriptor = os.open(os.path.join(self.source, name), READ_FLAGS) if opened is None else opened
        try:
            yield descriptor
        finally:
            if opened is None:
                os.close(descriptor)

    def _cut_to_batches(self, disk: Disk, last: SegmentFile) -> int:
        """Truncate a batch that was being written; returns the end offset of the copy."""
        path = os.path.join(self.target, names.offset_name(last.base_offset, names.LOG_SUFFIX))
        file = disk.open(path, read_only=True)
        try:
            end, end_offset = 0, last.base_offset
            for position, size, last_offset, _ in OutlineScan(file, 0, last.size):
                end, end_offset = position + size, last_offset + 1
        finally:
            file.close()
        if end < last.size:
            os.truncate(path, end)
        return end_offset

    def _drop(self, base_offset: int) -> None:
        self._copied.pop(base_offset, None)
        for suffix in names.SEGMENT_SUFFIXES:
            try:
                os.unlink(os.path.join(self.target, names.offset_name(base_offset, suffix)))
            except FileNotFoundError:
                continue

    def copy_state(self, disk: Disk) -> None:
        """Copy leader epochs, topic id, producer snapshots and the aborted transactions of the last segment.

        After `copy_log` and after the recovery point was read: a snapshot is written before the recovery point passes
        its offset, so none that a start needs is missing. Raises SourceChanged, OSError.
        """
        for name in os.listdir(self.target):
            if name.endswith(names.SNAPSHOT_SUFFIX):  # of an earlier attempt
                os.unlink(os.path.join(self.target, name))
        try:
            listing = os.listdir(self.source)
            for name in listing:
                snapshot = names.parse_offset(name, names.SNAPSHOT_SUFFIX)
                needed = snapshot is not None and snapshot <= self.end_offset
                if needed or name in names.PARTITION_FILES:
                    self._copy_whole(name)
        except FileNotFoundError as error:
            raise SourceChanged from error
        index = names.offset_name(self.cut[-1].base_offset, names.TRANSACTION_INDEX_SUFFIX)
        self._copy_whole(index)
        path = os.path.join(self.target, index)
        if disk.exists(path):
            disk.write_atomic(path, _before(disk.read_bytes(path), self.end_offset))

    def check(self) -> None:
        """Verify that the copied segments are unchanged; drop those that retention removed. Raises SourceChanged."""
        if self._opened:
            return
        now = list_segments(self.source)
        last, lowest = self.cut[-1], now[0].base_offset
        left = [segment for segment in self.cut if segment.base_offset >= lowest]
        there = [segment for segment in now if segment.base_offset <= last.base_offset]
        if not there or not left or there[:-1] != left[:-1]:
            raise SourceChanged
        if there[-1][:2] != last[:2] or there[-1].size < last.size:
            raise SourceChanged
        for segment in self.cut[: -len(left)]:
            self._drop(segment.base_offset)
        self.cut = left

    def topic_id(self, disk: Disk) -> Uuid | None:
        """The topic id in the copy, None without one. Raises OSError."""
        try:
            return read_partition_metadata(disk, os.path.join(self.target, names.PARTITION_METADATA))
        except CheckpointCorruption:
            return None  # a start takes it from the metadata log, too


def _before(entries: bytes, end_offset: int) -> bytes:
    """The entries of a transaction index for markers before an offset."""
    count = 0
    for entry in ENTRY.iter_unpack(entries[: len(entries) // ENTRY.size * ENTRY.size]):
        if entry[_LAST_OFFSET] >= end_offset:
            break
        count += 1
    return entries[: count * ENTRY.size]
