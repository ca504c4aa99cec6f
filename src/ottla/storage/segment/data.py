"""Data file of a segment: appends, truncation, and the regions of it that responses carry.

Invariants:
- `size_bytes` is the readable length of the file; a failed append truncates the file back to it.
- A region pins the data file from its creation to `release`. If a truncation cuts into a region in use, its next read
  raises OSError: the connection closes instead of sending bytes of other batches.
- Blocks are reserved ahead of the end only once the segment has grown to `_RESERVE_FROM`, in chunks, and released on
  roll, close and idleness, so that a thousand small partitions reserve nothing.

The meaning of batches (offsets, epochs, producers) is in `log_writer.py`.
"""

from __future__ import annotations

import errno

from ottla.common.platform.disk import Buffer, File
from ottla.storage.files.descriptors import Descriptor, Descriptors, Folder
from ottla.storage.files.names import LOG_SUFFIX, offset_name
from ottla.storage.segment.outlines import SCAN_BYTES, FileContent, Readable

_MIB = 1024 * 1024
_RESERVE_FROM = _MIB
_RESERVE_CHUNK = 4 * _MIB
_COPY_CHUNK = _MIB
_READ_AHEAD_BYTES = 16 * _MIB
"""More than the kernel reads ahead (`read_ahead_kb`), even with a large setting of a virtual machine."""
_PROBE_BYTES = 64 * 1024


class SegmentRegion:
    """Bytes of a segment that a response carries; implements `ottla.common.platform.channel.FileRegion`.

    `read_into` may run in a pool thread; everything else runs on the loop.
    """

    __slots__ = ("_data", "_descriptor", "_file", "_position", "_truncations", "committed", "length")

    def __init__(self, data: SegmentData, descriptor: Descriptor, position: int, length: int) -> None:
        self._data = data
        self._descriptor = descriptor
        self._file = descriptor.pin()
        self._position = position
        self._truncations = data.truncation_count
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
        left = self._data.size_bytes - beyond
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
        data = self._data
        if self._truncations != data.truncation_count and self._position + self.length > data.lowest_cut:
            raise OSError(errno.ESTALE, "the log was truncated under a read", self._file.path)

    def narrow(self, start: int, end: int) -> None:
        """Limit the region to its bytes from `start` to before `end`; only before it is sent."""
        self._position += start
        self.length = end - start

    def release(self) -> None:
        """Release the pin; called once."""
        self._descriptor.unpin()


class SegmentData:
    """Data file of one segment; see the module's invariants."""

    __slots__ = ("_folder", "_reserve_at", "descriptor", "lowest_cut", "size_bytes", "truncation_count")

    def __init__(self, folder: Folder, base_offset: int, size_bytes: int, suffix: str) -> None:
        """The file is opened on first use; `suffix` is appended to its name while it is not part of the log yet."""
        self._folder = folder
        self.descriptor = Descriptor(folder, offset_name(base_offset, LOG_SUFFIX + suffix))
        self._reserve_at = _RESERVE_FROM
        self.size_bytes = size_bytes
        self.truncation_count = 0
        self.lowest_cut = 0

    @property
    def path(self) -> str:
        return self.descriptor.path

    @property
    def descriptors(self) -> Descriptors:
        """Open files of the log directory, with the batches that searches found in them."""
        return self._folder.descriptors

    def readable(self) -> Readable:
        """Return the content for one scan of a start, which reads a small file at once and leaves it closed, as most
        are where there are tens of thousands. Raises OSError.
        """
        descriptor, size_bytes = self.descriptor, self.size_bytes
        return FileContent(descriptor.peek(size_bytes)) if size_bytes <= SCAN_BYTES else descriptor.file()

    def mtime_ms(self) -> int:
        """Return the modification time of the data file. Raises OSError."""
        return self._folder.disk.mtime_ms(self.path)

    def to_sync(self) -> list[Descriptor]:
        """Return the log file if it may contain volatile data.

        A file that was never written to has no content to lose, and its name belongs to the directory.
        """
        return [self.descriptor] if self.size_bytes or self.truncation_count or not self.descriptor.made_empty else []

    def append(self, data: Buffer, length: int) -> None:
        """Write `length` bytes at the end; raises OSError with file and state unchanged.

        If even truncating back fails, the OSError's `__cause__` is the first error, and the log must not be used
        further.
        """
        file = self.descriptor.file()
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
        file = self.descriptor.file()
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
            reason = (
                f"{error.strerror or error}; the torn append can't be truncated ({second.strerror or second}): check "
                "the disk, then restart the broker"
            )
            raise TornAppendError(second.errno, reason, self.path) from error

    def release_reserve(self) -> None:
        """Release reserved blocks; the next append reserves again."""
        if self._reserve_at > _RESERVE_FROM:
            self.descriptor.file().truncate(self.size_bytes)
            self._reserve_at = max(_RESERVE_FROM, self.size_bytes)

    def truncate(self, position: int) -> None:
        """Truncate the file at `position`, the start of a batch; durable on return. Raises OSError."""
        held = self.descriptor.pins > 0
        if position < self.size_bytes:
            self.lowest_cut = min(self.lowest_cut, position) if self.truncation_count and held else position
            self.truncation_count += 1
            file = self.descriptor.file()
            file.truncate(position)
            self.size_bytes = position
            file.fsync()
        self._reserve_at = max(_RESERVE_FROM, position)

    def region(self, position: int, length: int) -> SegmentRegion:
        """Return a region of the segment, pinned until released; raises OSError if the file cannot be opened."""
        return SegmentRegion(self, self.descriptor, position, length)


class TornAppendError(OSError):
    """An append failed and its torn bytes could not be truncated: the end of the file is unknown."""
