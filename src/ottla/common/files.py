"""Small files that settings name: keys, certificates, tokens. What a data directory holds goes through `Disk`."""

from __future__ import annotations


def read_file(path: str, limit: int) -> bytes:
    """The first bytes of a file, at most so many. Raises OSError."""
    with open(path, "rb") as file:
        return file.read(limit)
