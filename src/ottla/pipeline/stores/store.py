"""Interface of the stores that tables need. A file is named by its path in the store, with slashes.

**Guarantees of every store:** a file exists whole or not at all; if several writers create the same file, one succeeds;
a created, replaced or synced file survives a power failure; reads and listings after a change see it.

Names that begin with a dot are internal to the store, and are not listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class UnknownOutcomeError(OSError):
    """The outcome of creating a file is unknown."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a store; the time, in milliseconds from the epoch, is by the store's own clock."""

    path: str
    size_bytes: int
    modified_ms: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Store(Protocol):
    """A place for files. Raises OSError if it is unreachable or refuses, FileNotFoundError for a missing file.

    Implementations: `pipeline.stores.local_store.LocalStore` and `pipeline.stores.object_store.ObjectStore`.
    """

    @property
    def location(self) -> str:
        """An absolute path, or a URL."""

    @property
    def name(self) -> str:
        """The last part of the location."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings that open the store elsewhere, for `open_store` and delta-rs; may contain secrets."""

    @property
    def is_remote(self) -> bool:
        """True if the response to a change can be lost and the change still happen later."""

    def child(self, name: str) -> Store:
        """The place of that name within this one."""

    def exists(self) -> bool:
        """False for a missing directory; object stores have no directories and return True."""

    def make(self) -> None:
        """Create the directory, in stores that have directories."""

    def holds(self, name: str) -> bool:
        """True if a file of that name exists, or one below it."""

    def ancestors(self) -> Iterator[Store]:
        """This place by its real name and its parents, from the inside out."""

    def entries(self) -> list[str]:
        """The names of all direct children, including hidden ones; sorted."""

    def directories(self) -> list[str]:
        """The names of the direct subdirectories except links; sorted."""

    def files(self, below: str = "") -> Iterator[StoredFile]:
        """All files below a directory, none where there is no such directory."""

    def find(self, path: str) -> StoredFile | None:
        """A file by its path; None if it does not exist."""

    def locate(self, path: str) -> str:
        """A file's absolute path or URL, as other programs take it."""

    def relative(self, location: str) -> str:
        """The inverse of `locate`; a location outside the store is returned unchanged."""

    def read(self, path: str) -> bytes:
        """The content of a small file."""

    def create(self, path: str, content: bytes) -> str:
        """Write a small file unless it exists; returns why it may not survive a power failure, or "".

        Raises FileExistsError if it exists with other content, UnknownOutcomeError.
        """

    def replace(self, path: str, content: bytes) -> None:
        """Write a small file, or overwrite it."""

    def touch(self, path: str) -> None:
        """Set a file's modification time to now."""

    def remove(self, path: str) -> None:
        """Remove a file; a missing file is not an error."""

    def discard(self, below: str) -> None:
        """Remove a directory with all files below it; files that can't be removed stay, without an error."""

    def sweep(self, before_ms: int) -> None:
        """Remove temporary files of killed writers that were last written before that time."""

    def arrow(self, paths: Sequence[str]) -> tuple[Any, list[str]]:
        """A `pyarrow.fs.FileSystem` to read data files, and their names in it."""

    def open_output(self, path: str) -> Any:
        """A `pyarrow.NativeFile` for the content of a data file; the file can be visible before it is closed."""

    def sync(self, path: str) -> StoredFile:
        """Make a file that was closed durable."""
