"""Local files that outlive a loss of power; libraries of lake formats leave that to the operating system."""

from __future__ import annotations

import os
from pathlib import Path


def sync(*paths: Path) -> None:
    """Make files durable, and of directories their entries. Raises OSError."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_synced(path: Path, content: bytes) -> None:
    """Write a file whole; its directory's entry is not durable yet. Raises OSError."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_durably(path: Path, text: str) -> None:
    """Write or replace a file, whole or not at all, also where the power goes. Raises OSError."""
    staged = path.with_name(f".{path.name}")
    write_synced(staged, text.encode())
    staged.replace(path)
    sync(path.parent)
