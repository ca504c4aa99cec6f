"""Renamed files and directories of one data directory that are removed after `file.delete.delay.ms`."""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.platform.clock import Clock
from ottla.common.platform.disk import Disk
from ottla.storage.directory.directory_health import DirectoryHealth


class Removals(NamedTuple):
    """Paths that are past their `file.delete.delay.ms`."""

    files: list[str]
    directories: list[str]


class DeletedFiles:
    """Pending removals of one directory."""

    __slots__ = ("_clock", "_directories", "_disk", "_files", "_health")

    def __init__(self, disk: Disk, clock: Clock, health: DirectoryHealth) -> None:
        self._disk = disk
        self._clock = clock
        self._health = health
        self._files: list[tuple[int, str]] = []
        self._directories: list[tuple[int, str]] = []

    def add_files(self, paths: list[str], delay_ms: int) -> None:
        """Remove renamed files after a delay."""
        when = self._clock.time_ms() + delay_ms
        self._files += [(when, path) for path in paths]

    def add_directory(self, path: str, delay_ms: int = 0) -> None:
        """Remove the renamed directory of a log after a delay."""
        self._directories.append((self._clock.time_ms() + delay_ms, path))

    def due(self) -> Removals | None:
        """Return the paths for `remove`, or None. They are not due a second time."""
        now = self._clock.time_ms()
        due = Removals(
            [path for when, path in self._files if when <= now],
            [path for when, path in self._directories if when <= now],
        )
        if not due.files and not due.directories:
            return None
        self._files = [entry for entry in self._files if entry[0] > now]
        self._directories = [entry for entry in self._directories if entry[0] > now]
        return due

    def remove(self, due: Removals) -> None:
        """Remove the paths, in a pool thread: deleting a large file or directory takes long. Raises OSError."""
        for path in due.files:
            self._disk.unlink(path)
        for path in due.directories:
            self._disk.rmtree(path)

    def note_removed(self, due: Removals, error: BaseException | None) -> None:
        """Handle the outcome of `remove`, on the loop. The next start removes the rest."""
        if isinstance(error, OSError):
            self._health.note_error(error, "removing deleted files")
