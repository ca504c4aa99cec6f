"""Aborted transactions with markers in one segment: their index, which exists only if there are any.

The file is in `transaction_index`; collection over segments and rebuilding are in `log.aborted_transactions`.
"""

from __future__ import annotations

import contextlib

from ottla.storage.files.descriptors import Descriptor, Folder
from ottla.storage.segment.transaction_index import TransactionIndex
from ottla.storage.segment.transactions import CompletedTransaction


class SegmentAborted:
    """Aborted transactions of one segment."""

    __slots__ = ("_base_offset", "_folder", "index", "suffix")

    def __init__(self, folder: Folder, base_offset: int, suffix: str) -> None:
        self._folder = folder
        self._base_offset = base_offset
        self.suffix = suffix
        """Appended to the name of a new file."""
        self.index: TransactionIndex | None = None
        """None without aborted transactions, as in most segments."""

    def note(self, aborted: CompletedTransaction) -> bool:
        """Add an aborted transaction with its marker in this segment; returns whether that creates a file."""
        index = self.index
        if index is None:
            index = self.index = TransactionIndex(self._folder, self._base_offset, self.suffix)
        is_new = not index.has_file
        index.append(aborted)
        return is_new

    @property
    def awaits_file(self) -> bool:
        """Whether a full disk prevented the creation of the file of aborted transactions."""
        return self.index is not None and not self.index.has_file

    @property
    def is_written(self) -> bool:
        """Whether the files contain all aborted transactions."""
        return self.index is None or self.index.is_written

    def take_up(self) -> bool:
        """Open an existing file of aborted transactions; returns whether it is whole. Raises OSError."""
        index = TransactionIndex(self._folder, self._base_offset, self.suffix)
        size = self._folder.disk.size(index.path)
        if not size:
            return True
        self.index = index
        return index.take_up(size)

    def clear(self) -> None:
        """Empty an existing file of aborted transactions; the caller adds each again. Raises OSError."""
        if self.index is not None:
            self.index.close()
            self.index = TransactionIndex(self._folder, self._base_offset, self.suffix)
            self.index.create()

    def sync(self) -> None:
        """Make an existing file of aborted transactions durable; blocks. Raises OSError."""
        if self.index is not None:
            self.index.write_pending()
            self.index.descriptor.file().fsync()

    def write_pending(self) -> None:
        """Write entries that are only in memory to the file."""
        if self.index is not None:
            self.index.write_pending()

    def add_dirty(self, dirty: list[Descriptor]) -> None:
        """Add the file to those that need a sync, if it has volatile entries and still exists."""
        aborted = self.index
        if aborted is not None and aborted.dirty:
            with contextlib.suppress(FileNotFoundError):
                aborted.descriptor.file()
                dirty.append(aborted.descriptor)

    def close(self) -> None:
        """Close the file."""
        if self.index is not None:
            self.index.close()
