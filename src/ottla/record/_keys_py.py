"""Latest record of each key, in Python: twin and reference of `_keys.pyx`.

Inputs are the records of a batch and `record.walk.index_records` of them. The twins agree in their
results but not in the hash: here it is BLAKE2b, from the standard library, and there one that is fast in C. A table
never leaves the process that created it; `HASH_ID` distinguishes the hashes of stored filters.
"""

from __future__ import annotations

import mmap
from array import array
from hashlib import blake2b
from struct import Struct

from ottla.common.errors import InvariantError
from ottla.common.platform.disk import Buffer
from ottla.record._batch_py import INDEX_WIDTH

ENTRY_BYTES = 24
"""Bytes of an entry: 16 of the key's hash, and 8 of its offset plus one, so that no used entry has zeros there."""
SECRET_BYTES = 16
HASH_ID = 2
"""Number of the hash in files: a filter is read by the twin that wrote it."""

_HASH_BYTES = 16
_OFFSET = Struct("<q")
_INT64_RANGE = 1 << 64
_INT64_SIGN = 1 << 63
_OFFSET_DELTA, _TIMESTAMP_DELTA, _KEY_START, _KEY_LENGTH, _, _VALUE_LENGTH, _HEADERS_START, _HEADERS_LENGTH = range(8)


class KeyTable:
    """Latest offset of each key, by its keyed hash, in one table with open addressing.

    Pages without keys cost no memory.
    """

    __slots__ = ("_capacity", "_secret", "_slots", "_table", "count")

    def __init__(self, slots: int, capacity: int, secret: bytes) -> None:
        """Create a table of `slots` entries, of which `capacity`, fewer, may be used. Raises MemoryError."""
        if not 0 < capacity < slots:
            raise InvariantError("a table of keys has a free entry")
        if len(secret) != SECRET_BYTES:
            raise InvariantError(f"a secret has {SECRET_BYTES} bytes")
        self._slots = slots
        self._capacity = capacity
        self._secret = secret
        self.count = 0
        """Keys in the table."""
        try:
            self._table = mmap.mmap(-1, slots * ENTRY_BYTES)
        except (OSError, OverflowError) as error:  # it must not look like a disk error
            raise MemoryError(
                f"can't allocate {slots * ENTRY_BYTES} bytes for the cleaner's key map; free memory, or lower "
                "log.cleaner.dedupe.buffer.size"
            ) from error

    def close(self) -> None:
        """Free the memory."""
        self._table.close()

    def _find(self, key: Buffer) -> tuple[int, bytes, int]:
        """Return the index of the key's entry, used or free; its hash; and its offset plus one, 0 if it is free."""
        table = self._table
        digest = blake2b(key, digest_size=_HASH_BYTES, key=self._secret).digest()
        slot = int.from_bytes(digest[:8], "little") % self._slots
        while True:
            position = slot * ENTRY_BYTES
            next_offset: int = _OFFSET.unpack_from(table, position + _HASH_BYTES)[0]
            if not next_offset or table[position : position + _HASH_BYTES] == digest:
                return position, digest, next_offset
            slot = slot + 1 if slot + 1 < self._slots else 0

    def note(self, body: Buffer, rows: array[int], base_offset: int, first_offset: int) -> int:
        """Add the records from `first_offset` on, each as the latest of its key.

        Returns the number of processed rows: fewer than given when no more keys fit.
        """
        view = memoryview(body)
        for at in range(0, len(rows), INDEX_WIDTH):
            offset = base_offset + rows[at + _OFFSET_DELTA]
            length = rows[at + _KEY_LENGTH]
            if offset < first_offset or length < 0:
                continue
            start = rows[at + _KEY_START]
            position, digest, next_offset = self._find(view[start : start + length])
            middle = position + _HASH_BYTES
            if not next_offset:
                if self.count >= self._capacity:
                    return at // INDEX_WIDTH
                self.count += 1
                self._table[position:middle] = digest
            _OFFSET.pack_into(self._table, middle, offset + 1)
        return len(rows) // INDEX_WIDTH

    def surviving(
        self, body: Buffer, rows: array[int], base_offset: int, known_offset: int, *, keeps_tombstones: bool
    ) -> tuple[array[int], int, int]:
        """Return the numbers of the records that are the latest of their key, or are behind `known_offset`.

        Also returns how many were dropped for lack of a key, and how many retained ones are tombstones, if permitted.
        """
        view = memoryview(body)
        kept: array[int] = array("q")
        keyless_count = tombstone_count = 0
        for number in range(len(rows) // INDEX_WIDTH):
            at = number * INDEX_WIDTH
            offset = base_offset + rows[at + _OFFSET_DELTA]
            is_tombstone = rows[at + _VALUE_LENGTH] < 0
            if offset <= known_offset:
                length = rows[at + _KEY_LENGTH]
                if length < 0:
                    keyless_count += 1
                    continue
                if is_tombstone and not keeps_tombstones:
                    continue
                start = rows[at + _KEY_START]
                if offset + 1 < self._find(view[start : start + length])[2]:
                    continue
            kept.append(number)
            tombstone_count += is_tombstone
        return kept, keyless_count, tombstone_count


def gather(body: Buffer, rows: array[int], kept: array[int], base_timestamp: int) -> tuple[bytearray, int]:
    """Return the records numbered in `kept`, concatenated unchanged, and their latest timestamp.

    Timestamps overflow as signed 64-bit numbers; the result is -1 if none is above.
    """
    view = memoryview(body)
    out = bytearray()
    newest = -1
    for number in kept:
        at = number * INDEX_WIDTH
        before = at - INDEX_WIDTH
        start = rows[before + _HEADERS_START] + rows[before + _HEADERS_LENGTH] if number else 0
        out += view[start : rows[at + _HEADERS_START] + rows[at + _HEADERS_LENGTH]]
        timestamp = (base_timestamp + rows[at + _TIMESTAMP_DELTA] + _INT64_SIGN) % _INT64_RANGE - _INT64_SIGN
        newest = max(newest, timestamp)
    return out, newest


def hash_key(secret: bytes, key: Buffer) -> int:
    """Return the 16-byte hash of a key as one little-endian number."""
    return int.from_bytes(blake2b(key, digest_size=_HASH_BYTES, key=secret).digest(), "little")


def key_hashes(secret: bytes, body: Buffer, rows: array[int]) -> array[int]:
    """Return the low 64 bits of the hash of each key, in order; records without a key have none."""
    view = memoryview(body)
    found: array[int] = array("Q")
    for at in range(0, len(rows), INDEX_WIDTH):
        length = rows[at + _KEY_LENGTH]
        if length >= 0:
            start = rows[at + _KEY_START]
            found.append(hash_key(secret, view[start : start + length]) % _INT64_RANGE)
    return found


def _probe(hashed: int, probe: int, bit_count: int) -> int:
    return ((hashed & 0xFFFFFFFF) + probe * (hashed >> 32 | 1)) % bit_count


def key_filter(hashes: array[int], bit_count: int, probes: int) -> bytearray:
    """Return a Bloom filter of 64-bit hashes, with `probes` bits for each."""
    if bit_count <= 0:
        raise InvariantError("a key filter has bits")
    out = bytearray((bit_count + 7) // 8)
    for hashed in hashes:
        for probe in range(probes):
            bit = _probe(hashed, probe, bit_count)
            out[bit >> 3] |= 1 << (bit & 7)
    return out


def filters_with(data: Buffer, places: array[int], hashes: array[int], probes: int) -> bytearray:
    """Return a byte for each filter in `data`: 1 if it can have one of the hashes.

    `places` has the position and the number of bits of each filter; one without bits has no keys.
    """
    out = bytearray(len(places) // 2)
    for number in range(len(out)):
        start, bit_count = places[2 * number], places[2 * number + 1]
        if not 0 <= start <= len(data) or not 0 <= bit_count <= 8 * (len(data) - start):
            raise InvariantError("a key filter is outside of its file")
        for hashed in hashes if bit_count else ():
            bits = (_probe(hashed, probe, bit_count) for probe in range(probes))
            if all(data[start + (bit >> 3)] >> (bit & 7) & 1 for bit in bits):
                out[number] = 1
                break
    return out
