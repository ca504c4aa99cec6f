"""Sparse offset index and time index of a segment, in Kafka's files, and their common base class.

An offset index entry (int32 offset relative to the base offset, int32 position) names a batch by its last offset and
the byte where it starts. A time index entry (int64 timestamp, int32 relative offset) states that no batch up to that
offset has a larger timestamp.

Invariants:
- Entries only rise: offsets and positions in the offset index, timestamps and offsets in the time index.
- The file never has more than the appended entries; at most `_PENDING_BYTES` of the newest are only in memory. They are
  on disk after `write_pending`, which precedes a flush, a roll and a clean stop.
- A batch with an offset outside of its segment, from a damaged header, gets no entry: its neighbours are still found.
- No whole index is in memory: a search reads entries one by one and then one block, which is cached for sequential
  readers.

Not used: mmap, and Kafka's preallocation (an index is as long as its entries). Aborted transactions are in
`transaction_index`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct

from ottla.storage.files.descriptors import Descriptor, Folder
from ottla.storage.files.log_config import MAX_INT
from ottla.storage.files.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, offset_name

OFFSET_ENTRY = Struct(">ii")
"""(relative offset, position)."""
TIME_ENTRY = Struct(">qi")
"""(timestamp, relative offset)."""
TIME_ENTRY_SIZE = TIME_ENTRY.size
"""Size of the larger kind of entry, which limits the number of entries in `segment.index.bytes`."""

_PENDING_BYTES = 1024
_BLOCK_ENTRIES = 256
_LOADED_BYTES = 1024


class IndexCorruption(Exception):
    """An index file contradicts itself or its segment; it is rebuilt from the log."""


def offset_entries(blocks: Iterable[bytes], base_offset: int) -> Iterator[tuple[int, int]]:
    """Iterate over the (last offset of a batch, its position) entries of a file that arrives in blocks of entries.

    An incomplete entry at the end, and the zeros of a preallocated rest, are ignored.
    """
    return ((base_offset + relative, position) for relative, position in _entries(blocks, OFFSET_ENTRY, 0))


def time_entries(blocks: Iterable[bytes], base_offset: int) -> Iterator[tuple[int, int]]:
    """Iterate over (timestamp, last offset of its batch) entries, as `offset_entries`."""
    return ((timestamp, base_offset + relative) for timestamp, relative in _entries(blocks, TIME_ENTRY, 1))


def _entries(blocks: Iterable[bytes], entry: Struct, offset_field: int) -> Iterator[tuple[int, int]]:
    is_first = True
    for block in blocks:
        for first, second in entry.iter_unpack(block[: len(block) - len(block) % entry.size]):
            if not is_first and (first, second)[offset_field] == 0:
                return
            is_first = False
            yield first, second


class SparseIndex:
    """Base of all indexes: fixed-size entries in a file, the newest of them in memory."""

    __slots__ = ("_block", "_block_first", "_descriptor", "_pending", "_stored", "_torn", "base_offset", "dirty")

    _FORMAT = OFFSET_ENTRY
    _SUFFIX = INDEX_SUFFIX
    _HELD_BYTES = _PENDING_BYTES

    def __init__(self, folder: Folder, base_offset: int, suffix: str = "") -> None:
        """`suffix` is appended to the file name while the segment is not part of the log yet."""
        self.base_offset = base_offset
        self._descriptor = Descriptor(folder, offset_name(base_offset, self._SUFFIX + suffix))
        self._pending = bytearray()
        self._stored = 0
        self._torn = False
        self._block = b""
        self._block_first = 0
        self.dirty = False
        """Whether the file was changed since its last sync. An existing file was synced before the recovery point
        passed it, or by a clean stop; in all other cases it is rebuilt.
        """

    def create(self) -> None:
        """Create an empty file, truncating an existing one."""
        self._descriptor.create_empty()
        self.dirty = not self._descriptor.made_empty

    def open(self) -> None:
        """Open the existing file. Raises FileNotFoundError, IndexCorruption."""
        self._take_size(self._descriptor.file().size())

    def load(self) -> None:
        """Like `open`, but a small file is read into memory and left closed."""
        self._block = self._descriptor.peek(_LOADED_BYTES)
        if len(self._block) < _LOADED_BYTES:
            self._take_size(len(self._block))
        else:
            self._block = b""
            self.open()

    def _take_size(self, size: int) -> None:
        width = self._FORMAT.size
        if size % width:
            raise IndexCorruption(f"{self.path}: {size} bytes are not a multiple of the entry size")
        self._stored = size // width
        if self._stored > 1 and not any(self.unpack(self._stored - 1)):
            raise IndexCorruption(f"{self.path}: the last entry is zero")

    @property
    def path(self) -> str:
        return self._descriptor.path

    @property
    def descriptor(self) -> Descriptor:
        return self._descriptor

    @property
    def entry_count(self) -> int:
        return self._stored + len(self._pending) // self._FORMAT.size

    def _append(self, packed: bytes) -> None:
        self._pending += packed
        if len(self._pending) >= self._HELD_BYTES:
            try:
                self.write_pending()
            except OSError:
                # The batch is in the log already, so its append must not fail. The entries stay in memory, and the
                # flush, roll or stop that needs them on disk reports the error.
                return

    @property
    def is_written(self) -> bool:
        """Whether all entries are in the file."""
        return not self._pending

    def write_pending(self) -> None:
        """Write the entries that are only in memory to the file; raises OSError, and can be called again then."""
        if not self._pending:
            return
        file = self._descriptor.file()
        self.dirty = True
        if self._torn:
            file.truncate(self._stored * self._FORMAT.size)
            self._torn = False
        try:
            file.append((self._pending,))
        except OSError:
            self._torn = True
            raise
        self._stored += len(self._pending) // self._FORMAT.size
        self._pending = bytearray()
        self._block = b""

    def _read(self, first: int, count: int) -> bytes:
        width = self._FORMAT.size
        data = self._descriptor.read(count * width, first * width)
        if len(data) != count * width:
            raise IndexCorruption(f"{self.path} ends before entry {first + count}")
        return data

    def unpack(self, number: int) -> tuple[int, ...]:
        """Return the values of a stored entry."""
        width = self._FORMAT.size
        if number >= self._stored:
            return self._FORMAT.unpack_from(self._pending, (number - self._stored) * width)
        at = number - self._block_first
        if 0 <= at < len(self._block) // width:
            return self._FORMAT.unpack_from(self._block, at * width)
        return self._FORMAT.unpack(self._read(number, 1))

    def _search(self, field: int, target: int) -> int:
        """Return the number of the last entry with a `field` of at most `target`; -1 without one."""
        low, high = -1, self.entry_count
        if self._block:
            # A sequential reader's next target is mostly in the same block.
            first = self._block_first
            last = first + len(self._block) // self._FORMAT.size - 1
            if self.unpack(first)[field] <= target:
                low = first
                if self.unpack(last)[field] > target:
                    high = last
        while high - low > 1:
            if high <= self._stored and high - low <= _BLOCK_ENTRIES and not self._block_covers(low + 1, high):
                first = max(low, 0)
                self._block = self._read(first, high - first)
                self._block_first = first
            middle = (low + high) // 2
            if self.unpack(middle)[field] <= target:
                low = middle
            else:
                high = middle
        return low

    def _block_covers(self, first: int, end: int) -> bool:
        return self._block_first <= first and end <= self._block_first + len(self._block) // self._FORMAT.size

    def entries(self) -> Iterator[tuple[int, int]]:
        """Return all entries as stored, for checks and tools."""
        for number in range(self.entry_count):
            first, second = self.unpack(number)
            yield first, second

    def truncate(self, count: int) -> None:
        """Truncate to the first `count` entries."""
        if count < self._stored:
            self.dirty = True
            self._descriptor.file().truncate(count * self._FORMAT.size)
            self._stored = count
            self._pending = bytearray()
        else:
            del self._pending[(count - self._stored) * self._FORMAT.size :]
        self._block = b""

    def close(self) -> None:
        """Close the file; pending entries must have been written before."""
        self._block = b""
        self._descriptor.close()


class OffsetIndex(SparseIndex):
    """offset -> position of a batch at or before it."""

    __slots__ = ()

    def append(self, last_offset: int, position: int) -> None:
        """Add the batch at `position` with the last offset `last_offset`, if the index can represent it."""
        relative = last_offset - self.base_offset
        if 0 <= relative <= MAX_INT:
            self._append(self._FORMAT.pack(relative, position))

    def lookup(self, offset: int) -> tuple[int, int]:
        """Return (last offset, position) of the batch of the last entry at or before `offset`; (-1, 0) without one."""
        number = self._search(0, min(offset - self.base_offset, MAX_INT))
        if number < 0:
            return -1, 0
        relative, position = self.unpack(number)
        return self.base_offset + relative, position

    def lookup_position(self, position: int) -> tuple[int, int]:
        """Return (last offset, position) of the last batch with an entry that starts at `position` or before.

        (-1, 0) without one.
        """
        number = self._search(1, min(position, MAX_INT))
        if number < 0:
            return -1, 0
        relative, found = self.unpack(number)
        return self.base_offset + relative, found

    def offset_behind(self, position: int) -> int | None:
        """Return the last offset of the first batch with an entry that starts at `position` or later, or None."""
        number = self._search(1, min(position - 1, MAX_INT)) + 1
        return self.base_offset + self.unpack(number)[0] if number < self.entry_count else None

    def last_entry(self) -> tuple[int, int]:
        """Return (last offset, position) of the batch of the last entry; (-1, 0) without entries."""
        count = self.entry_count
        if not count:
            return -1, 0
        relative, position = self.unpack(count - 1)
        return self.base_offset + relative, position

    def last_position(self) -> int:
        """Position in the last entry, 0 without entries."""
        return self.last_entry()[1]

    def truncate_to_offset(self, offset: int) -> None:
        """Drop the entries of batches with `offset` or later ones."""
        self.truncate(self._search(0, offset - self.base_offset - 1) + 1)


class TimeIndex(SparseIndex):
    """timestamp -> an offset up to which no batch is newer."""

    __slots__ = ()

    _FORMAT = TIME_ENTRY
    _SUFFIX = TIME_INDEX_SUFFIX

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add the largest timestamp so far and the last offset of its batch, if they are larger."""
        relative = offset - self.base_offset
        if timestamp > self.last_timestamp() and 0 <= relative <= MAX_INT:
            self._append(self._FORMAT.pack(timestamp, relative))

    def last_timestamp(self) -> int:
        """Timestamp in the last entry, -1 without entries."""
        count = self.entry_count
        return self.unpack(count - 1)[0] if count else -1

    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) without entries."""
        count = self.entry_count
        if not count:
            return -1, self.base_offset
        timestamp, relative = self.unpack(count - 1)
        return timestamp, self.base_offset + relative

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """Return (timestamp, offset) of the last entry below `timestamp`, before which every batch is older: a scan
        starts there. (-1, base offset) without one.
        """
        number = self._search(0, timestamp - 1)
        if number < 0:
            return -1, self.base_offset
        found, relative = self.unpack(number)
        return found, self.base_offset + relative

    def truncate_to_offset(self, offset: int) -> None:
        """Drop the entries at `offset` or later."""
        self.truncate(self._search(1, offset - self.base_offset - 1) + 1)
