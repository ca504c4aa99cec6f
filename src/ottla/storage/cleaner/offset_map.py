"""The latest offset of each key in the part of a log that a round of cleaning has read.

24 bytes a key, whatever its length: 16 of a keyed hash and 8 of the offset, in one table with open addressing. 128 MiB
know 5 million keys. The secret differs from round to round: who writes keys can't make two of them meet, as with the
MD5 of Apache Kafka's map, so that one would take the other for its successor.

Invariants: the table has its size from the beginning, and takes no more keys than its load factor allows. Pages of it
that hold no key cost no memory.
"""

from __future__ import annotations

import mmap
from hashlib import blake2b
from struct import Struct

from ottla.common.disk import Buffer
from ottla.common.errors import InvariantError

ENTRY_BYTES = 24
SECRET_BYTES = 32

_HASH_BYTES = 16
_OFFSET = Struct(">q")
_ABSENT = b"\0" * 8
"""Offsets are stored plus one, so that no entry has zeros there."""


class OffsetMap:
    """See the module."""

    __slots__ = ("_capacity", "_count", "_secret", "_slots", "_table", "latest_offset")

    def __init__(self, buffer_bytes: int, load_factor: float, secret: bytes) -> None:
        """A table of at most `buffer_bytes` for one round. Raises MemoryError."""
        self._slots = max(buffer_bytes // ENTRY_BYTES, 2)
        self._capacity = min(max(int(self._slots * load_factor), 1), self._slots - 1)
        self._count = 0
        self._secret = secret
        try:
            self._table = mmap.mmap(-1, self._slots * ENTRY_BYTES)
        except OSError as error:  # it must not pass for an error of the disk
            raise MemoryError(f"no room for {self._slots * ENTRY_BYTES} bytes of keys") from error
        self.latest_offset = -1
        """What the map knows of reaches to this offset; every record behind it stays."""

    def __len__(self) -> int:
        return self._count

    @property
    def utilization(self) -> float:
        """How much of the table is taken, 0 to 1."""
        return self._count / self._slots

    def put(self, key: Buffer, offset: int) -> bool:
        """Note the record at `offset`, which is behind all noted before; False when no more keys fit."""
        if offset <= self.latest_offset:
            raise InvariantError(f"offset {offset} was noted after {self.latest_offset}")
        position, known = self._find(key)
        if not known:
            if self._count >= self._capacity:
                return False
            self._count += 1
        _OFFSET.pack_into(self._table, position + _HASH_BYTES, offset + 1)
        self.latest_offset = offset
        return True

    def get(self, key: Buffer) -> int:
        """The latest offset of `key`, -1 when it was not noted."""
        position, known = self._find(key, note=False)
        return int(_OFFSET.unpack_from(self._table, position + _HASH_BYTES)[0]) - 1 if known else -1

    def reached(self, offset: int) -> None:
        """Everything up to `offset` was read, whether it has keys or not."""
        if offset > self.latest_offset:
            self.latest_offset = offset

    def _find(self, key: Buffer, *, note: bool = True) -> tuple[int, bool]:
        """Where the entry of `key` is, and whether it is there; with `note` its hash is put where it will be.

        An entry counts from the moment it has an offset, so a hash that was put in vain is written over.
        """
        table = self._table
        digest = blake2b(key, digest_size=_HASH_BYTES, key=self._secret).digest()
        slot = int.from_bytes(digest[:8], "little") % self._slots
        while True:
            position = slot * ENTRY_BYTES
            middle = position + _HASH_BYTES
            if table[middle : middle + 8] == _ABSENT:
                if note:
                    table[position:middle] = digest
                return position, False
            if table[position:middle] == digest:
                return position, True
            slot = slot + 1 if slot + 1 < self._slots else 0

    def close(self) -> None:
        """Give the memory back."""
        self._table.close()
