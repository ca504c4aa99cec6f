"""Limit of open files: descriptors are opened on use and closed in order of last use.

Ten thousand partitions have tens of thousands of files; only those in use need a descriptor. A `Descriptor` is a file
that may or may not be open; `pin` holds it open while a response or a pool job reads from it.

Invariants:
- A pinned file is never closed: not by the LRU and not by `close`, which then takes effect at the last `unpin`. So no
  reader ever sees a descriptor number that was given to another file.
- All methods run on the event loop. Pool threads only touch the `File` that a pin gave them.
- More than the limit is open only while more than the limit is pinned.

Other descriptors (sockets) are not counted; the limit must leave room for them.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from itertools import islice

from ottla.common.errors import InvariantError
from ottla.common.platform.disk import Disk, File
from ottla.storage.files.off_loop import Known, WouldBlock

MAX_PLACES = 1024
"""Found batches per log directory, at most 400 bytes each: consumers of one partition read close to each other."""

Place = tuple["Descriptor", int, int]


class Descriptors:
    """Open files of a log directory, bounded."""

    __slots__ = ("_limit", "disk", "known", "open_files", "places")

    def __init__(self, disk: Disk, limit: int) -> None:
        self.disk = disk
        self._limit = max(limit, 1)
        self.open_files: OrderedDict[Descriptor, None] = OrderedDict()
        """In order of last use, the most recent last."""
        self.known: Known | None = None
        """Set during a call that must not block: results that were read or computed for it off the loop."""
        self.places: dict[Place, tuple[int, int, int, int]] = {}
        """Outlines of batches that searches found (`remember`), by data file, its truncations, and the target."""

    def remember(self, place: Place, outline: tuple[int, int, int, int]) -> None:
        """Keep a found batch for other consumers that read the same records; the oldest one is dropped for it."""
        places = self.places
        places[place] = outline
        if len(places) > MAX_PLACES:
            del places[next(iter(places))]

    def __len__(self) -> int:
        """Number of open files."""
        return len(self.open_files)

    def add(self, descriptor: Descriptor) -> None:
        """Add an opened descriptor and close the least recently used ones above the limit."""
        self.open_files[descriptor] = None
        excess = len(self.open_files) - self._limit
        if excess <= 0:
            return
        for candidate in list(islice(self.open_files, excess + _PINNED_LOOKAHEAD)):
            if candidate is descriptor or candidate.pins:
                continue
            candidate.release_file()
            excess -= 1
            if excess == 0:
                return

    def remove(self, descriptor: Descriptor) -> None:
        self.open_files.pop(descriptor, None)


_PINNED_LOOKAHEAD = 64
"""Number of pinned files that one eviction skips before it gives up until the next opening."""


class Folder:
    """Directory of a partition's files; a rename of the directory changes only this."""

    __slots__ = ("descriptors", "path")

    def __init__(self, descriptors: Descriptors, path: str) -> None:
        self.descriptors = descriptors
        self.path = path

    @property
    def disk(self) -> Disk:
        return self.descriptors.disk

    def join(self, name: str) -> str:
        return f"{self.path}/{name}"


class Descriptor:
    """One file of a folder, opened on demand."""

    __slots__ = ("_closed", "_file", "_folder", "made_empty", "name", "pins")

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder
        self.name = name
        self._file: File | None = None
        self._closed = False
        self.made_empty = False
        """Whether the file was new at `create_empty`; writes do not change this."""
        self.pins = 0

    @property
    def path(self) -> str:
        return self._folder.join(self.name)

    def file(self) -> File:
        """Return the open file; raises OSError if it cannot be opened."""
        file = self._file
        if file is not None:
            self._folder.descriptors.open_files.move_to_end(self)
            return file
        if self._closed:
            raise InvariantError(f"{self.path} is used after it was closed")
        descriptors = self._folder.descriptors
        file = self._file = descriptors.disk.open(self.path)
        descriptors.add(self)
        return file

    def create_empty(self) -> None:
        """Create and open the file; a remainder of a crash under its name is truncated."""
        descriptors = self._folder.descriptors
        file = self._file = descriptors.disk.open(self.path, create=True)
        descriptors.add(self)
        if file.size():
            file.truncate(0)
        else:
            self.made_empty = True

    def read(self, length: int, position: int) -> bytes:
        """Read up to `length` bytes, fewer only at the end of the file.

        In a call that must not block (`Descriptors.known`) it raises WouldBlock for pages outside the page cache;
        without support of the file system it reads directly.
        """
        file = self.file()
        known = self._folder.descriptors.known
        if known is None:
            return file.read(length, position)
        data = bytearray(length)
        try:
            with memoryview(data) as view:
                if file.try_read_into(view, position) == length:
                    return bytes(data)
        except BlockingIOError as error:
            if error.errno == errno.EOPNOTSUPP:
                return file.read(length, position)
        key = (self.path, position, length)
        if key in known:  # the pool has just read it
            return file.read(length, position)
        pinned = self.pin()
        raise WouldBlock(key, lambda: len(pinned.read(length, position)), pin=self)

    def peek(self, length: int) -> bytes:
        """Return up to `length` bytes of the file's beginning, without leaving it open. Raises OSError."""
        file = self._folder.disk.open(self.path)
        try:
            return file.read(length, 0)
        finally:
            file.close()

    @property
    def in_place(self) -> bool:
        """Return whether the open file is still the one at its name. Raises OSError if none can be opened."""
        return self.file().is_at(self.path)

    def renamed(self, name: str) -> None:
        """Rename within the same folder; an open descriptor stays valid."""
        self.name = name

    def pin(self) -> File:
        """Return the open file, which stays open until `unpin`."""
        file = self.file()
        self.pins += 1
        return file

    def unpin(self) -> None:
        """Release a pin; the last one of a closed descriptor closes the file."""
        if self.pins <= 0:
            raise InvariantError(f"{self.path} is released more often than it was held")
        self.pins -= 1
        if self._closed and self.pins == 0:
            self.release_file()

    def close(self) -> None:
        """End its use; the file is closed once no pin is left. Idempotent."""
        self._closed = True
        if self.pins == 0:
            self.release_file()

    def release_file(self) -> None:
        """Close the file if it is open; the next use opens it again."""
        file, self._file = self._file, None
        if file is not None:
            self._folder.descriptors.remove(self)
            file.close()
