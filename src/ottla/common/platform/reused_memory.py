"""Memory that is used again: the first touch of fresh pages costs more than the bytes that are written to them."""

from __future__ import annotations

_STEP_BYTES = 1024 * 1024


class ReusedMemory:
    """Memory for one content at a time; it grows to the largest one."""

    __slots__ = ("_memory",)

    def __init__(self) -> None:
        self._memory = bytearray()

    def take(self, size: int) -> memoryview:
        """A writable view of at least `size` bytes. The next call may overwrite them. Raises MemoryError."""
        if len(self._memory) < size:
            self._memory = bytearray(-(-size // _STEP_BYTES) * _STEP_BYTES)
        return memoryview(self._memory)
