"""Store in a local directory; each write syncs the file and its directory entry."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs

from ottla.pipeline.stores.durable import sync, write_synced
from ottla.pipeline.stores.store import StoredFile, UnknownOutcomeError

_STAGED = re.compile(r"\.[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class LocalStore:
    """`path` is absolute."""

    path: Path

    @property
    def location(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def settings(self) -> Mapping[str, str]:
        return {}

    @property
    def is_remote(self) -> bool:
        return False

    def child(self, name: str) -> LocalStore:
        return LocalStore(self.path / name)

    def exists(self) -> bool:
        return self.path.is_dir()

    def make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def holds(self, name: str) -> bool:
        return (self.path / name).exists()

    def ancestors(self) -> Iterator[LocalStore]:
        real = Path(os.path.realpath(self.path))
        return map(LocalStore, (real, *real.parents))

    def entries(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir())

    def directories(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir() if path.is_dir() and not path.is_symlink())

    def files(self, below: str = "") -> Iterator[StoredFile]:
        for directory, _, names in os.walk(self.path / below):
            for name in names:
                if not name.startswith("."):
                    found = self._find(Path(directory, name))
                    if found is not None:  # else it was removed concurrently
                        yield found

    def find(self, path: str) -> StoredFile | None:
        return self._find(self.path / path)

    def _find(self, path: Path) -> StoredFile | None:
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return StoredFile(path.relative_to(self.path).as_posix(), status.st_size, int(status.st_mtime * 1000))

    def locate(self, path: str) -> str:
        return str(self.path / path)

    def relative(self, location: str) -> str:
        path = Path(location)
        return path.relative_to(self.path).as_posix() if path.is_relative_to(self.path) else location

    def read(self, path: str) -> bytes:
        return (self.path / path).read_bytes()

    def create(self, path: str, content: bytes) -> str:
        """Written whole under a temporary name, synced, then hard-linked to its own name, which only one writer can
        do."""
        final = self.path / path
        final.parent.mkdir(parents=True, exist_ok=True)
        staged = _stage(final.parent, content)
        try:
            os.link(staged, final)
        except OSError as error:  # a network file system may have created the link anyway
            if not _was_written(final, content, error):
                raise
        finally:
            with suppress(OSError):
                staged.unlink()
        try:
            sync(final.parent)
        except OSError as error:
            return str(error)
        return ""

    def replace(self, path: str, content: bytes) -> None:
        final = self.path / path
        final.parent.mkdir(parents=True, exist_ok=True)
        staged = _stage(final.parent, content)
        try:
            staged.rename(final)
        except OSError:
            with suppress(OSError):
                staged.unlink()
            raise

    def touch(self, path: str) -> None:
        os.utime(self.path / path)

    def remove(self, path: str) -> None:
        (self.path / path).unlink(missing_ok=True)

    def discard(self, below: str) -> None:
        """Also removes the directory around it, if that is empty then."""
        shutil.rmtree(self.path / below, ignore_errors=True)
        with suppress(OSError):
            (self.path / below).parent.rmdir()

    def sweep(self, before_ms: int) -> None:
        for directory, _, names in os.walk(self.path):
            for path in (Path(directory, name) for name in names if _STAGED.fullmatch(name)):
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime * 1000 < before_ms:
                        path.unlink()

    def arrow(self, paths: Sequence[str]) -> tuple[Any, list[str]]:
        return pyarrow.fs.LocalFileSystem(), [str(self.path / path) for path in paths]

    def open_output(self, path: str) -> Any:
        final = self.path / path
        final.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(final), "wb")

    def sync(self, path: str) -> StoredFile:
        final = self.path / path
        sync(final, final.parent)
        found = self._find(final)
        if found is None:
            raise FileNotFoundError(
                f"{final} was removed while it was written: keep other programs away from the table"
            )
        return found


def _stage(directory: Path, content: bytes) -> Path:
    """Write a synced file under a unique temporary name."""
    staged = directory / f".{uuid.uuid4().hex}"
    try:
        write_synced(staged, content)
    except OSError:
        with suppress(OSError):
            staged.unlink()
        raise
    return staged


def _was_written(final: Path, content: bytes, error: OSError) -> bool:
    try:
        return final.read_bytes() == content
    except FileNotFoundError:
        return False
    except OSError as unreadable:
        raise UnknownOutcomeError(str(unreadable)) from error
