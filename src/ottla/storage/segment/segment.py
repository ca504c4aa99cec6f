"""One segment of a log: a data file and its indexes, and the regions of it that responses carry.

Invariants:
- `size_bytes` is the readable length of the data file; a failed append truncates the file back to it.
- `max_timestamp` is the largest of all batches in the segment, or `UNLOADED` until it is needed (`load_timestamps`).
- A region pins the data file from its creation to `release`. If a truncation cuts into a region in use, its next read
  raises OSError: the connection closes instead of sending bytes of other batches.
- Blocks are reserved ahead of the end only once the segment has grown to `_RESERVE_FROM`, in chunks, and released on
  roll, close and idleness, so that a thousand small partitions reserve nothing.

The meaning of batches (offsets, epochs, producers) is in `log_writer.py`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Protocol, TypeVar

from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.disk import Buffer, File
from ottla.record.batch import (
    BASE_OFFSET,
    BATCH_LENGTH,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_V2,
    MAX_TIMESTAMP,
    MIN_BATCH_LENGTH,
)
from ottla.record.legacy.message_set import MIN_MESSAGE_LENGTH
from ottla.record.legacy.stored import SMALLEST_SIZE, header_of_message, is_message
from ottla.storage.files.descriptors import Descriptor, Folder
from ottla.storage.files.names import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, offset_name
from ottla.storage.files.off_loop import WouldBlock
from ottla.storage.segment.index import IndexCorruption, OffsetIndex, TimeIndex
from ottla.storage.segment.transaction_index import TransactionIndex
from ottla.storage.segment.transactions import CompletedTransaction

logger = logging.getLogger(__name__)

T = TypeVar("T")

_INDEX_DAMAGE = (IndexCorruption, FileNotFoundError)

UNLOADED = -2
NO_TIMESTAMP = -1

_MIB = 1024 * 1024
_RESERVE_FROM = _MIB
_RESERVE_CHUNK = 4 * _MIB
_COPY_CHUNK = _MIB
_SCAN_BYTES = 8192
_READ_AHEAD_BYTES = 16 * _MIB
"""More than the kernel reads ahead (`read_ahead_kb`), even with a large setting of a virtual machine."""
_PROBE_BYTES = 64 * 1024
WORTH_LEAVING_BYTES = 16 * 1024
"""A shorter beginning of a batch is cheaper to send than to find."""

BATCH_OUTLINE = Struct(">qi4xb6xi8xq")
"""The fields of a batch header that a scan needs: base offset, batch length, magic, last offset delta, max
timestamp."""

_OUTLINE_SIZE = BATCH_OUTLINE.size

Outline = tuple[int, int, int, int]
"""(position, size in bytes, last offset, max timestamp) of a batch, or of a message of format v0 or v1."""

_NO_BATCH: Outline = (0, 0, -1, NO_TIMESTAMP)


class SegmentRegion:
    """Bytes of a segment that a response carries; implements `ottla.common.platform.channel.FileRegion`.

    `read_into` may run in a pool thread; everything else runs on the loop.
    """

    __slots__ = ("_descriptor", "_file", "_position", "_segment", "_truncations", "committed", "length")

    def __init__(self, segment: Segment, descriptor: Descriptor, position: int, length: int) -> None:
        self._segment = segment
        self._descriptor = descriptor
        self._file = descriptor.pin()
        self._position = position
        self._truncations = segment.truncation_count
        self.committed = False
        """Set by the reader: only an unclean election truncates bytes below the high watermark."""
        self.length = length

    def read_into(self, view: memoryview, start: int) -> int:
        """Copy from byte `start` of the region on; may block on the disk, may be short. Raises OSError."""
        want = self.length - start
        count = self._file.read_into(view[:want] if len(view) > want else view, self._position + start)
        self._check(count, want)
        return count

    def try_read_into(self, view: memoryview, start: int) -> int:
        """Copy from the page cache only; raises BlockingIOError if it does not have the bytes."""
        want = self.length - start
        count = self._file.try_read_into(view[:want] if len(view) > want else view, self._position + start)
        self._check(count, want)
        return count

    @property
    def by_reference(self) -> bool:
        """See `FileRegion`."""
        return self.committed and self._file.can_send

    def send(self, socket: int, start: int, length: int) -> int:
        """See `FileRegion`. Raises OSError as reading does."""
        self._check_cut()
        count = self._file.send(socket, self._position + start, length)
        self._check(count, length)
        return count

    def is_cold(self, start: int, length: int) -> bool:
        """Return whether the `length` bytes from `start` on, or those that the kernel reads ahead behind them, are not
        cached; see `FileRegion`.
        """
        position = self._position + start
        beyond = position + length + _READ_AHEAD_BYTES
        left = self._segment.size_bytes - beyond
        file = self._file
        return not (file.is_cached(position, length) and (left <= 0 or file.is_cached(beyond, min(left, _PROBE_BYTES))))

    def read_all(self) -> bytes:
        """Read the whole region at once, for callers without a scratch buffer. May block on the disk."""
        data = self._file.read(self.length, self._position)
        self._check(len(data), self.length)
        return data

    def _check(self, count: int, want: int) -> None:
        self._check_cut()
        if count == 0 and want > 0:
            raise OSError(errno.EIO, "the file is shorter than the log", self._file.path)

    def _check_cut(self) -> None:
        segment = self._segment
        if self._truncations != segment.truncation_count and self._position + self.length > segment.lowest_cut:
            raise OSError(errno.ESTALE, "the log was truncated under a read", self._file.path)

    def release(self) -> None:
        """Release the pin; called once."""
        self._descriptor.unpin()


class Segment:
    """One segment; see the module's invariants."""

    __slots__ = (
        "_bytes_since_entry",
        "_cut",
        "_cut_offset",
        "_folder",
        "_index",
        "_index_interval_bytes",
        "_log",
        "_reserve_at",
        "_suffix",
        "_time_index",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "index_entry_count",
        "lowest_cut",
        "max_timestamp",
        "max_timestamp_offset",
        "size_bytes",
        "transaction_index",
        "truncation_count",
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
        self._log = Descriptor(folder, offset_name(base_offset, LOG_SUFFIX + suffix))
        self._index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self.transaction_index: TransactionIndex | None = None
        """None without aborted transactions, as in most segments."""
        self._index_interval_bytes = index_interval_bytes
        self._bytes_since_entry = 0
        self._cut_offset = -1
        self._cut: Outline | None = None
        self._reserve_at = _RESERVE_FROM
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.created_ms = created_ms
        self.index_entry_count = 0
        self.first_timestamp = NO_TIMESTAMP if size_bytes == 0 else UNLOADED
        self.max_timestamp = NO_TIMESTAMP if size_bytes == 0 else UNLOADED
        self.max_timestamp_offset = base_offset
        self.truncation_count = 0
        self.lowest_cut = 0

    @classmethod
    def create(
        cls, folder: Folder, base_offset: int, created_ms: int, index_interval_bytes: int, suffix: str = ""
    ) -> Segment:
        """Create the files of an empty segment, truncating leftovers of a crash."""
        segment = cls(folder, base_offset, 0, created_ms, index_interval_bytes, suffix)
        segment._log.create_empty()
        segment._index = OffsetIndex(folder, base_offset, suffix)
        segment._index.create()
        segment._time_index = TimeIndex(folder, base_offset, suffix)
        segment._time_index.create()
        return segment

    @property
    def path(self) -> str:
        return self._log.path

    def mtime_ms(self) -> int:
        """Return the modification time of the data file. Raises OSError."""
        return self._folder.disk.mtime_ms(self.path)

    @property
    def log_descriptor(self) -> Descriptor:
        return self._log

    def data_to_sync(self) -> list[Descriptor]:
        """Return the log file if it may contain volatile data.

        A file that was never written to has no content to lose, and its name belongs to the directory.
        """
        return [self._log] if self.size_bytes or self.truncation_count or not self._log.made_empty else []

    def indexes_to_sync(self) -> list[Descriptor]:
        """Return the index files with volatile entries, all of them written; raises OSError."""
        return self._repairing(self._dirty_indexes)

    def _dirty_indexes(self) -> list[Descriptor]:
        self._write_indexes()
        dirty = [index.descriptor for index in (self._index, self._time_index) if index is not None and index.dirty]
        for descriptor in dirty:
            descriptor.file()  # raises if it no longer exists
        aborted = self.transaction_index
        if aborted is not None and aborted.dirty:
            with contextlib.suppress(FileNotFoundError):
                aborted.descriptor.file()
                dirty.append(aborted.descriptor)
        return dirty

    def indexes_synced(self) -> None:
        """A sync of `indexes_to_sync` begins; if it fails, the log is not used any more."""
        for index in (self._index, self._time_index, self.transaction_index):
            if index is not None:
                index.dirty = False

    @property
    def offset_index(self) -> OffsetIndex:
        if self._index is None:
            self._open_indexes()
        index = self._index
        if index is None:
            raise IndexCorruption(f"{self.path}: no offset index")
        return index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._open_indexes()
        index = self._time_index
        if index is None:
            raise IndexCorruption(f"{self.path}: no time index")
        return index

    def _open_indexes(self) -> None:
        index = OffsetIndex(self._folder, self.base_offset, self._suffix)
        time_index = TimeIndex(self._folder, self.base_offset, self._suffix)
        try:
            index.open()
            if index.last_position() >= max(self.size_bytes, 1):
                raise IndexCorruption(f"{index.path} points beyond the end of its segment")
            time_index.open()
        except WouldBlock:
            index.close()
            time_index.close()
            raise
        except (FileNotFoundError, IndexCorruption):
            index.close()
            time_index.close()
            self.rebuild_indexes()
            return
        self._index = index
        self._time_index = time_index

    # -- appending ---------------------------------------------------------------------------------------------------

    def append(self, data: Buffer, length: int) -> None:
        """Write `length` bytes at the end; raises OSError with file and state unchanged.

        If even truncating back fails, the OSError's `__cause__` is the first error, and the log must not be used
        further.
        """
        file = self._log.file()
        size = self.size_bytes
        if size >= self._reserve_at:
            file.preallocate(size, _RESERVE_CHUNK)
            self._reserve_at = size + _RESERVE_CHUNK
        try:
            file.append((data,))
        except OSError as error:
            self._cut_back(file, error)
            raise
        self.size_bytes = size + length

    def append_from(self, source: File, position: int, length: int) -> None:
        """Write bytes of another file at the end, by reference if the file systems can; raises as `append` does."""
        file = self._log.file()
        try:
            copied = file.append_from(source, position, length)
            while copied < length:
                data = source.read(min(length - copied, _COPY_CHUNK), position + copied)
                if not data:
                    raise OSError(errno.EIO, "the file ends early", source.path)
                copied += file.append((data,))
        except OSError as error:
            self._cut_back(file, error)
            raise
        self.size_bytes += length

    def overwrite(self, position: int, data: bytes) -> None:
        """Overwrite bytes without concurrent readers, unsynced. Raises OSError."""
        self._folder.disk.overwrite(self.path, data, position)

    def _cut_back(self, file: File, error: OSError) -> None:
        """Truncate the remainder of a failed append."""
        try:
            file.truncate(self.size_bytes)
        except OSError as second:
            reason = f"{second.strerror or second}, and a torn append can't be cut off"
            raise TornAppendError(second.errno, reason, self.path) from error

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Add a batch at `position` to the indexes, if an entry is due.

        Returns whether the indexes were rebuilt: then they contain everything written, also behind that batch.
        """
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self._bytes_since_entry > self._index_interval_bytes:
            try:
                self.offset_index.append(last_offset, position)
                self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            except _INDEX_DAMAGE:
                self.rebuild_indexes()  # the log already contains this batch
                return True
            self._bytes_since_entry = 0
            self.index_entry_count += 1
        self._bytes_since_entry += size
        return False

    def note_aborted(self, aborted: CompletedTransaction) -> bool:
        """Add an aborted transaction with its marker in this segment; returns whether that creates a file."""
        index = self.transaction_index
        if index is None:
            index = self.transaction_index = TransactionIndex(self._folder, self.base_offset, self._suffix)
        is_new = not index.has_file
        index.append(aborted)
        return is_new

    @property
    def awaits_file(self) -> bool:
        """Whether a full disk prevented the creation of the file of aborted transactions."""
        return self.transaction_index is not None and not self.transaction_index.has_file

    @property
    def indexes_are_written(self) -> bool:
        """Whether the files of offset and time index contain all entries."""
        return all(index is None or index.is_written for index in (self._index, self._time_index))

    @property
    def aborted_are_written(self) -> bool:
        """Whether the files contain all aborted transactions."""
        return self.transaction_index is None or self.transaction_index.is_written

    def take_up_aborted(self) -> bool:
        """Open an existing file of aborted transactions; returns whether it is whole. Raises OSError."""
        index = TransactionIndex(self._folder, self.base_offset, self._suffix)
        size = self._folder.disk.size(index.path)
        if not size:
            return True
        self.transaction_index = index
        return index.take_up(size)

    def clear_aborted(self) -> None:
        """Empty an existing file of aborted transactions; the caller adds each again. Raises OSError."""
        if self.transaction_index is not None:
            self.transaction_index.close()
            self.transaction_index = TransactionIndex(self._folder, self.base_offset, self._suffix)
            self.transaction_index.create()

    def sync_aborted(self) -> None:
        """Make an existing file of aborted transactions durable; blocks. Raises OSError."""
        if self.transaction_index is not None:
            self.transaction_index.write_pending()
            self.transaction_index.descriptor.file().fsync()

    def release_reserve(self) -> None:
        """Release reserved blocks; the next append reserves again."""
        if self._reserve_at > _RESERVE_FROM:
            self._log.file().truncate(self.size_bytes)
            self._reserve_at = max(_RESERVE_FROM, self.size_bytes)

    def write_indexes(self) -> None:
        """Write index entries that are only in memory to the files."""
        self._repairing(self._write_indexes)

    def _write_indexes(self) -> None:
        if self._index is not None:
            self._index.write_pending()
        if self._time_index is not None:
            self._time_index.write_pending()
        if self.transaction_index is not None:
            self.transaction_index.write_pending()

    def become_inactive(self) -> None:
        """Add the largest timestamp as the last entry of the time index, as Kafka does on roll and close."""
        self.load_timestamps()
        if self.max_timestamp >= 0:
            self._repairing(lambda: self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset))
        self.write_indexes()
        self.release_reserve()

    # -- reading -----------------------------------------------------------------------------------------------------

    def region(self, position: int, length: int) -> SegmentRegion:
        """Return a region of the segment, pinned until released; raises OSError if the file cannot be opened."""
        return SegmentRegion(self, self._log, position, length)

    def find_offset(self, offset: int) -> Outline | None:
        """Return the first batch with a last offset of at least `offset`, or None."""
        if offset == self._cut_offset:
            return self._cut
        return self._repairing(lambda: self._find(offset, UNLOADED))

    def leave_cut_batch(self, position: int, length: int) -> int:
        """Return how much to read of the `length` bytes from the batch at `position` on, which contain it whole.

        A large batch that would be cut at their end is omitted if the index has it: a client would discard its
        beginning and fetch it next. Then that fetch needs no search.
        """
        end = position + length
        try:
            last_offset, cut = self.offset_index.lookup_position(end)
        except _INDEX_DAMAGE:  # logged and repaired by the next search for an offset
            return length
        if cut <= position or end - cut < WORTH_LEAVING_BYTES:
            return length
        header = self._log.read(_OUTLINE_SIZE, cut)
        if len(header) < _OUTLINE_SIZE:
            return length
        base_offset, batch_length, magic, last_delta, max_timestamp = BATCH_OUTLINE.unpack(header)
        size = batch_length + LOG_OVERHEAD
        if magic < MAGIC_V2 or base_offset + last_delta != last_offset or cut + size <= end:
            return length
        self._cut_offset = base_offset
        self._cut = cut, size, last_offset, max_timestamp
        return cut - position

    def offset_behind(self, position: int) -> int | None:
        """Return an offset close to `position` that no batch before it has; None if the index has none."""
        return self._repairing(lambda: self.offset_index.offset_behind(position))

    def _repairing(self, use: Callable[[], T]) -> T:
        """Call `use` on the indexes, and again on rebuilt ones if they are damaged or removed.

        A disk error or another process may have changed them: a search trusts only entries that fit their batch.
        """
        try:
            return use()
        except _INDEX_DAMAGE:
            self.rebuild_indexes()
            return use()

    def _find(self, offset: int, timestamp: int) -> Outline | None:
        """Return the first batch that reaches both. Raises IndexCorruption and OSError."""
        return self._scan_from(self.offset_index.lookup(offset), offset, timestamp)

    def _scan_from(self, entry: tuple[int, int], offset: int, timestamp: int) -> Outline | None:
        """Search from the batch of an entry on, which must exist. Raises IndexCorruption and OSError."""
        last_offset, position = entry
        if not 0 <= position < max(self.size_bytes, 1):
            raise IndexCorruption(f"{self.path}: an entry of the index points to {position}")
        scan = OutlineScan(self._log, position, self.size_bytes)
        for outline in scan:
            found_position, _, found_offset, found_timestamp = outline
            if position and found_position == position and found_offset != last_offset:
                break
            if found_offset >= offset and found_timestamp >= timestamp:
                return outline
        else:
            if not position or scan.position > position:
                return None
        raise IndexCorruption(f"{self.path}: an entry of the index names no batch at {position}")

    def find_timestamp(self, timestamp: int, from_offset: int) -> Outline | None:
        """Return the first batch that reaches both `timestamp` and `from_offset`, or None."""

        def find() -> Outline | None:
            entry = self.time_index.lookup(timestamp)
            self._check_time_entry(entry)
            _, older_until = entry
            position = self.offset_index.lookup(max(older_until, from_offset))
            return self._scan_from(position, from_offset, timestamp)

        return self._repairing(find)

    def _check_time_entry(self, entry: tuple[int, int]) -> None:
        """Raises IndexCorruption unless a batch at the entry's offset has its timestamp."""
        timestamp, offset = entry
        if timestamp == NO_TIMESTAMP:
            return
        outline = self._find(offset, UNLOADED) if offset >= self.base_offset else None
        _, _, _, found = outline or _NO_BATCH
        if found != timestamp:
            raise IndexCorruption(
                f"{self.path}: no batch at offset {offset} has the timestamp of the index, {timestamp}"
            )

    def outline_at(self, position: int) -> Outline | None:
        """Return the batch that starts at `position`; None at the end."""
        return find_batch(self._log, position, self.size_bytes, -1, UNLOADED)

    def end_before(self, position: int, offset: int) -> int:
        """Return the next offset behind the batches before `position`, and the start of the first that reaches
        `offset`.
        """
        _, start = self._repairing(lambda: self.offset_index.lookup(offset - 1))
        end = self.base_offset
        for _, _, last_offset, _ in OutlineScan(self._log.file(), start, position):
            end = last_offset + 1
        return end

    def read_batch(self, outline: Outline) -> bytes:
        """A whole batch."""
        position, size, _, _ = outline
        return self._log.read(size, position)

    def load_timestamps(self) -> None:
        """Find the largest timestamp: from the time index up to its last entry, from a scan for the rest."""
        if self.max_timestamp != UNLOADED:
            return
        try:
            timestamp, offset = self.time_index.last_entry()
            self._check_time_entry((timestamp, offset))
            last_entry = self.offset_index.last_entry()
            last_offset, position = last_entry
            self._scan_from(last_entry, last_offset, UNLOADED)
        except _INDEX_DAMAGE:
            self.rebuild_indexes()
            return
        for _, _, last_offset, max_timestamp in OutlineScan(self._log, position, self.size_bytes):
            if max_timestamp > timestamp:
                timestamp, offset = max_timestamp, last_offset
        self.max_timestamp = timestamp
        self.max_timestamp_offset = offset

    def load_first_timestamp(self) -> int:
        """Largest timestamp of the first batch, the base of time-based rolling; -1 if it has none."""
        if self.first_timestamp == UNLOADED:
            _, _, _, self.first_timestamp = self.outline_at(0) or _NO_BATCH
        return self.first_timestamp

    def find_end(self) -> tuple[int, int, int]:
        """Return (next offset, position) after the last whole batch, and its position, by a scan from the last index
        entry.

        Also prepares the active segment for appends.
        """
        next_offset = self.base_offset
        if not self.size_bytes:
            return next_offset, 0, 0
        last_position = end = entry = self.offset_index.last_position()
        for position, size, last_offset, _ in OutlineScan(self._log.file(), entry, self.size_bytes):
            next_offset = last_offset + 1
            last_position, end = position, position + size
        self._bytes_since_entry = end - entry
        self.index_entry_count = self.offset_index.entry_count
        return next_offset, end, last_position

    # -- changing ----------------------------------------------------------------------------------------------------

    def truncate_to_position(self, position: int, offset: int) -> None:
        """Truncate the data at `position`, the start of the batch with `offset`, and the indexes.

        Durable on return: batches that return after a power failure would overlap later ones.
        """
        held = self._log.pins > 0
        if position < self.size_bytes:
            self.lowest_cut = min(self.lowest_cut, position) if self.truncation_count and held else position
            self.truncation_count += 1
            file = self._log.file()
            file.truncate(position)
            self.size_bytes = position
            file.fsync()
        self._cut_offset = -1
        self._reserve_at = max(_RESERVE_FROM, position)
        self._repairing(lambda: self._truncate_indexes(position, offset))
        self.first_timestamp = UNLOADED if position else NO_TIMESTAMP
        self.max_timestamp = UNLOADED if position else NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self.load_timestamps()
        self.load_first_timestamp()

    def _truncate_indexes(self, position: int, offset: int) -> None:
        index = self.offset_index
        index.truncate_to_offset(offset)
        self.time_index.truncate_to_offset(offset)
        self._bytes_since_entry = position - index.last_position()
        self.index_entry_count = index.entry_count

    def begin_rebuild(self) -> None:
        """Empty both indexes; the caller scans the segment and adds each batch again."""
        self._close_indexes()
        self._index = OffsetIndex(self._folder, self.base_offset, self._suffix)
        self._index.create()
        self._time_index = TimeIndex(self._folder, self.base_offset, self._suffix)
        self._time_index.create()
        self._bytes_since_entry = 0
        self.index_entry_count = 0
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the batch headers, which are trusted; `recovery` is for untrusted ones.

        Rare, and done in one step: it blocks even if the caller must not.
        """
        logger.warning("the indexes of %s are damaged or missing; rebuilding them", self.path, extra=RATE_LIMITED)
        descriptors = self._folder.descriptors
        known, descriptors.known = descriptors.known, None
        try:
            self.begin_rebuild()
            for position, size, last_offset, max_timestamp in OutlineScan(self._log, 0, self.size_bytes):
                self.note_batch(position, size, last_offset, max_timestamp)
            self.finish_rebuild()
        finally:
            descriptors.known = known

    def finish_rebuild(self) -> None:
        """Write the indexes after the last batch. On a full disk the entries stay in memory until a flush writes
        them.
        """
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        with contextlib.suppress(OSError):
            self.write_indexes()

    def mark_deleted(self) -> list[str]:
        """Rename the files so that no start takes them for a segment; returns the new paths, for unlinking."""
        return self._rename(self._suffix + DELETED_SUFFIX, (self._log,))

    def take_suffix(self, suffix: str) -> None:
        """Rename the files, the data file first: to `suffix` instead of the present one. Raises OSError."""
        indexes = (self._index, self._time_index, self.transaction_index)
        self._rename(suffix, (self._log, *(index.descriptor for index in indexes if index is not None)))
        self._suffix = suffix

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
        self._log.close()
        self._close_indexes()
        if self.transaction_index is not None:
            self.transaction_index.close()

    def _close_indexes(self) -> None:
        if self._index is not None:
            self._index.close()
        if self._time_index is not None:
            self._time_index.close()


class TornAppendError(OSError):
    """An append failed and its torn bytes could not be truncated: the end of the file is unknown."""


class Readable(Protocol):
    """Source of a scan."""

    def read(self, length: int, position: int) -> bytes: ...


def find_batch(file: Readable, position: int, end: int, offset: int, timestamp: int) -> Outline | None:
    """Return the first batch from `position` on that reaches both `offset` and `timestamp`."""
    for outline in OutlineScan(file, position, end):
        _, _, last_offset, max_timestamp = outline
        if last_offset >= offset and max_timestamp >= timestamp:
            return outline
    return None


class OutlineScan:
    """Iterator over the batches of `file` in [position, end), where `position` starts one, including messages of
    formats v0 and v1.

    Reads a few KiB at a time and skips bodies; an incomplete or impossible batch ends it.
    """

    __slots__ = ("_chunk", "_chunk_position", "_end", "_file", "position")

    def __init__(self, file: Readable, position: int, end: int) -> None:
        self._file = file
        self.position = position
        self._end = end
        self._chunk = b""
        self._chunk_position = position

    def __iter__(self) -> OutlineScan:
        return self

    def __next__(self) -> Outline:
        position = self.position
        at = position - self._chunk_position
        if at + _OUTLINE_SIZE > len(self._chunk):
            if position + SMALLEST_SIZE > self._end:
                raise StopIteration
            self._chunk = self._file.read(min(_SCAN_BYTES, self._end - position), position)
            self._chunk_position = position
            at = 0
            if len(self._chunk) < HEADER_SIZE:
                return self._next_message(at)
        base_offset, batch_length, magic, last_delta, max_timestamp = BATCH_OUTLINE.unpack_from(self._chunk, at)
        if magic < MAGIC_V2:
            return self._next_message(at)
        size = batch_length + LOG_OVERHEAD
        if batch_length < MIN_BATCH_LENGTH or position + size > self._end:
            raise StopIteration
        self.position = position + size
        return position, size, base_offset + last_delta, max_timestamp

    def _next_message(self, at: int) -> Outline:
        """Parse a message of format v0 or v1, which may be shorter than the header of a batch."""
        chunk, position = self._chunk, self.position
        if len(chunk) - at < SMALLEST_SIZE or not is_message(chunk, at):
            raise StopIteration
        header = header_of_message(chunk, at)
        size = header[BATCH_LENGTH] + LOG_OVERHEAD
        if header[BATCH_LENGTH] < MIN_MESSAGE_LENGTH[header[MAGIC]] or position + size > self._end:
            raise StopIteration
        self.position = position + size
        return position, size, header[BASE_OFFSET], header[MAX_TIMESTAMP]
