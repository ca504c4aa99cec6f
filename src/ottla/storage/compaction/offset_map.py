"""Latest offset of each key in the part of a log that a cleaning pass has read.

A key of any length costs 24 bytes: 16 of a keyed hash and 8 of the offset, in one table (`record.keys`). 128 MiB
store 5 million keys. The hash secret differs from pass to pass, so a producer cannot create two keys that collide and
supersede each other, as it can with the MD5 of Apache Kafka's map.

Invariants: the table has a fixed size, and takes no more keys than its load factor allows. Pages without keys cost no
memory.
"""

from __future__ import annotations

from array import array

from ottla.common.errors import InvariantError
from ottla.common.platform.disk import Buffer
from ottla.record.keys import ENTRY_BYTES, KeyTable
from ottla.record.walk import INDEX_WIDTH


class OffsetMap:
    """Offset map of one pass. Records are given as the body of a batch and `record.walk.index_records` of it."""

    __slots__ = ("_slots", "_table", "latest_offset")

    def __init__(self, buffer_bytes: int, load_factor: float, secret: bytes) -> None:
        """A table of at most `buffer_bytes` for one pass; the secret has `SECRET_BYTES`. Raises MemoryError."""
        self._slots = max(buffer_bytes // ENTRY_BYTES, 2)
        capacity = min(max(int(self._slots * load_factor), 1), self._slots - 1)
        self._table = KeyTable(self._slots, capacity, secret)
        self.latest_offset = -1
        """The map covers offsets up to this one; records behind it are retained."""

    def __len__(self) -> int:
        return self._table.count

    @property
    def utilization(self) -> float:
        """Used fraction of the table, 0 to 1."""
        return self._table.count / self._slots

    def note(self, body: Buffer, rows: array[int], base_offset: int, first_offset: int) -> bool:
        """Add the records of a batch from `first_offset` on, in rising order; False when no more keys fit."""
        if not rows:
            return True
        if max(base_offset + rows[0], first_offset) <= self.latest_offset:
            raise InvariantError(f"offset {base_offset + rows[0]} was noted after {self.latest_offset}")
        noted = self._table.note(body, rows, base_offset, first_offset)
        is_whole = noted * INDEX_WIDTH == len(rows)
        self.reached(base_offset + (rows[-INDEX_WIDTH] if is_whole else rows[noted * INDEX_WIDTH] - 1))
        return is_whole

    def surviving(
        self, body: Buffer, rows: array[int], base_offset: int, *, keeps_tombstones: bool
    ) -> tuple[array[int], int, int]:
        """Return the numbers of retained records, and how many were dropped without a key and retained as
        tombstones.
        """
        return self._table.surviving(body, rows, base_offset, self.latest_offset, keeps_tombstones=keeps_tombstones)

    def reached(self, offset: int) -> None:
        """Record that everything up to `offset` was read, with or without keys."""
        if offset > self.latest_offset:
            self.latest_offset = offset

    def close(self) -> None:
        """Free the memory."""
        self._table.close()
