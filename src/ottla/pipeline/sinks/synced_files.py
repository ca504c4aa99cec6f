"""Local files for pyiceberg, durable when they are closed.

pyiceberg does not sync files, while the catalog's own commit is durable: after a power failure the catalog would name
missing metadata. Locations are plain paths, which neither side takes for a URL with escapes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from ottla.pipeline.stores.durable import sync


class _SyncedFile:
    """A file opened to be written; synced with its directory's entry before it is closed."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("wb")

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        if self._file.closed:
            return
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        sync(self._path.parent)

    def __enter__(self) -> _SyncedFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _LocalFile(InputFile, OutputFile):  # type: ignore[misc]
    """One path, to read or to write."""

    def __len__(self) -> int:
        return self._path.stat().st_size

    @property
    def _path(self) -> Path:
        return local_path(self.location)

    def exists(self) -> bool:
        return self._path.exists()

    def open(self, seekable: bool = True) -> InputStream:
        return self._path.open("rb")

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and self._path.exists():
            raise FileExistsError(f"{self.location} exists already")
        return _SyncedFile(self._path)


class SyncedFileIO(FileIO):  # type: ignore[misc]
    """File access of pyiceberg; named in the catalog's `py-io-impl`."""

    def new_input(self, location: str) -> InputFile:
        return _LocalFile(location)

    def new_output(self, location: str) -> OutputFile:
        return _LocalFile(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        local_path(location if isinstance(location, str) else location.location).unlink()


def local_path(location: str) -> Path:
    """The path of a plain location, or of one with `file:` before it. Raises ValueError for any other."""
    scheme, colon, rest = location.partition(":")
    if location.startswith("/"):
        return Path(location)
    if colon and scheme == "file":
        return Path("/" + rest.lstrip("/"))
    raise ValueError(f"is at {location}, which is neither a local path nor in a supported object store")
