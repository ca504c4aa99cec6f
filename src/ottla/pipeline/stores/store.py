"""What tables need of the place where their files lie; a file is named by its path in it, with slashes.

**Every store promises:** a file is there whole or not at all; of several who create the same one, one succeeds; what
was created, replaced or synced outlives a loss of power; who reads or lists after a change sees it.

Names that begin with a dot are the store's own, and are not listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class UnknownOutcomeError(OSError):
    """Whether a file was created can't be told."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it lies there; the time, in milliseconds from the epoch, is by the store's own clock."""

    path: str
    size_bytes: int
    modified_ms: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Store(Protocol):
    """A place for files. Raises OSError where it can't be reached or refuses, FileNotFoundError without a file."""

    @property
    def location(self) -> str:
        """An absolute path, or a URL."""

    @property
    def name(self) -> str:
        """The last part of the location."""

    @property
    def settings(self) -> Mapping[str, str]:
        """What opens it elsewhere beside the location, as `open_store` and delta-rs take it; may hold secrets."""

    @property
    def is_remote(self) -> bool:
        """True where the answer to a change may be lost and the change come after that."""

    def child(self, name: str) -> Store:
        """The place of that name within this one."""

    def exists(self) -> bool:
        """False for a directory that is not there; object stores have none, so theirs are."""

    def make(self) -> None:
        """Make the directory, where there are any."""

    def holds(self, name: str) -> bool:
        """Whether there is a file of that name, or one below it."""

    def ancestors(self) -> Iterator[Store]:
        """This place by its real name, and those around it, from the inside out."""

    def entries(self) -> list[str]:
        """The names of all that lies right within this one, hidden ones as well; sorted."""

    def directories(self) -> list[str]:
        """The names of the places right within this one, but for links; sorted."""

    def files(self, below: str = "") -> Iterator[StoredFile]:
        """All files below a directory, none where there is no such directory."""

    def find(self, path: str) -> StoredFile | None:
        """A file by its path; None without one."""

    def locate(self, path: str) -> str:
        """A file's absolute path or URL, as other programs take it."""

    def relative(self, location: str) -> str:
        """The inverse of `locate`; a location elsewhere as it is."""

    def read(self, path: str) -> bytes:
        """The content of a small file."""

    def create(self, path: str, content: bytes) -> str:
        """Write a small file unless it is there; returns why it may not outlive a loss of power, or nothing.

        Raises FileExistsError when it is there with another content, UnknownOutcomeError.
        """

    def replace(self, path: str, content: bytes) -> None:
        """Write a small file whether it is there or not."""

    def touch(self, path: str) -> None:
        """Give a file the time of now."""

    def remove(self, path: str) -> None:
        """Take a file away; one that is gone already is none to complain about."""

    def discard(self, below: str) -> None:
        """Take a directory away with all that is below it; what can't go stays, and is none to complain about."""

    def sweep(self, before_ms: int) -> None:
        """Remove what killed writers left under names of nobody, where it was last written before that time."""

    def arrow(self, paths: Sequence[str]) -> tuple[Any, list[str]]:
        """A `pyarrow.fs.FileSystem` to read data files, and what it calls them."""

    def open_output(self, path: str) -> Any:
        """A `pyarrow.NativeFile` for a data file's content; the file may be seen before it is closed."""

    def sync(self, path: str) -> StoredFile:
        """Make a file that was closed durable."""
