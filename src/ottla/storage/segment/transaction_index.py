"""Aborted transactions with markers in one segment, in Kafka's `.txnindex` file.

Each entry is 34 bytes: int16 version 0, then int64 producer id, first offset, last offset (that of the marker) and last
stable offset at the time of the abort. A read_committed reader needs those that overlap its range.

Invariants:
- Last offsets rise, and last stable offsets never decrease: a search finds the entries of a range of offsets, and an
  entry with a last stable offset at or above the end of the range is the last one for it.
- No file exists before the first entry, and none is opened before it is needed.
- An entry is in the file at once, or in memory while the disk is full.

Collection over segments and rebuilding are in `aborted_transactions`.
"""

from __future__ import annotations

import logging
from struct import Struct

from ottla.common.logs import RATE_LIMITED
from ottla.storage.files.descriptors import Folder
from ottla.storage.files.names import TRANSACTION_INDEX_SUFFIX
from ottla.storage.segment.index import IndexCorruption, SparseIndex
from ottla.storage.segment.transactions import CompletedTransaction

logger = logging.getLogger(__name__)

_VERSION = 0
_BLOCK_ENTRIES = 256
_LAST_OFFSET = 3
ENTRY = Struct(">hqqqq")


def names_abort(entry: tuple[int, ...], base_offset: int) -> bool:
    """Return whether an entry can belong to a transaction with its marker in the segment at `base_offset`."""
    version, producer_id, first_offset, last_offset, stable = entry
    return (
        version == _VERSION
        and producer_id >= 0
        and 0 <= first_offset < last_offset >= base_offset
        and 0 <= stable <= last_offset + 1
    )


class TransactionIndex(SparseIndex):
    """Transaction index of one segment."""

    __slots__ = ("has_file",)

    _FORMAT = ENTRY
    _SUFFIX = TRANSACTION_INDEX_SUFFIX
    _HELD_BYTES = 0

    def __init__(self, folder: Folder, base_offset: int, suffix: str = "") -> None:
        """See `SparseIndex`."""
        super().__init__(folder, base_offset, suffix)
        self.has_file = False

    def create(self) -> None:
        """See `SparseIndex`."""
        super().create()
        self.has_file = True

    def take_up(self, size: int) -> bool:
        """Set the size of an existing file; returns whether it contains whole entries. Nothing is opened."""
        self.has_file = True
        self._stored, rest = divmod(size, ENTRY.size)
        return not rest

    def append(self, aborted: CompletedTransaction) -> None:
        """Add a transaction with a marker that was just appended to the segment."""
        self._append(ENTRY.pack(_VERSION, *aborted))

    def write_pending(self) -> None:
        """See `SparseIndex`. If the file was removed, the entries stay in memory, and the next search detects it."""
        if not self._pending:
            return
        if not self.has_file:
            self.create()
        try:
            super().write_pending()
        except FileNotFoundError:
            logger.warning("%s is gone", self.path, extra=RATE_LIMITED)

    def unpack(self, number: int) -> tuple[int, ...]:
        """See `SparseIndex`. Raises IndexCorruption for an entry that does not belong to this segment."""
        entry = super().unpack(number)
        self._check(entry)
        return entry

    def _check(self, entry: tuple[int, ...]) -> None:
        if not names_abort(entry, self.base_offset):
            raise IndexCorruption(f"{self.path}: {entry} is not an aborted transaction of this segment")

    def collect(self, from_offset: int, upper_offset: int, found: list[tuple[int, int]]) -> bool:
        """Add (producer id, first offset) of the transactions that overlap [from_offset, upper_offset) to `found`.

        Returns whether no later segment has any. Raises IndexCorruption and OSError.
        """
        first = self._search(_LAST_OFFSET, from_offset - 1) + 1
        previous = from_offset - 1
        count = self.entry_count
        while first < count:
            if first < self._stored:
                number = min(_BLOCK_ENTRIES, self._stored - first)
                block: bytes | bytearray = self._read(first, number)
            else:
                number = count - first
                block = self._pending[(first - self._stored) * ENTRY.size :]
            first += number
            for entry in ENTRY.iter_unpack(block):
                self._check(entry)
                _, producer_id, first_offset, last_offset, stable = entry
                if last_offset <= previous:
                    raise IndexCorruption(f"{self.path}: offset {last_offset} follows {previous}")
                previous = last_offset
                if first_offset < upper_offset:
                    found.append((producer_id, first_offset))
                if stable >= upper_offset:
                    return True
        return False

    def truncate_to_offset(self, offset: int) -> None:
        """Drop the transactions with a marker at `offset` or later. Raises IndexCorruption and OSError."""
        self.truncate(self._search(_LAST_OFFSET, offset - 1) + 1)
