"""Key filters of a closed segment, in the file `.keyfilter` beside it: which ranges of offsets cannot have a key.

A file has a header, a row for each block of the segment, the Bloom filters of the blocks, and a CRC-32C. A block is a
range of whole batches. A filter never denies a key that a record of its block has. So a file that is not the one of its
segment as it is must not be used: the header has the size and the modification time of the segment. A truncation, an
append or a repair changes them, also by Apache Kafka, which neither reads nor removes these files.

Compaction only removes records, so a filter stays correct for the others.

Apache Kafka has no such file. The files are written by `compaction.key_filter_builder`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from ottla.common.platform.disk import Disk
from ottla.record.checksum import crc32c
from ottla.record.keys import HASH_ID, SECRET_BYTES, filters_with, hash_key, key_filter

BITS_PER_KEY = 10
PROBES = 7
"""With these numbers, a filter falsely has one key in 120."""
MAX_FILE_BYTES = 64 * 1024 * 1024
"""Bound of a file that is read. A segment with more keys, about 50 million, has no file."""
SECRET = bytes(SECRET_BYTES)
"""A client that constructs keys which collide only makes searches for them slower."""

_MAGIC = b"OKF1"
_HEADER = Struct(">4sBBqqqqI")
_ROW = Struct(">qqqIIB")
_CRC = Struct(">I")
_HASH_BITS = (1 << 64) - 1


class SegmentIdentity(NamedTuple):
    """A closed segment as it is; `end_offset` is the base offset of the next one."""

    base_offset: int
    end_offset: int
    size_bytes: int
    mtime_ms: int


class Block(NamedTuple):
    """The batches from `start` to the next block. Control batches count as nothing."""

    start: int
    oldest_ms: int
    """Smallest timestamp by the headers of batches; like `newest_ms`, without meaning if there are no records."""
    newest_ms: int
    records: int
    is_transactional: bool
    """Whether any record belongs to a transaction, which may be aborted."""
    hashes: array[int]


class KeyFreeRange(NamedTuple):
    """Offsets from `start` to before `end` in which no record has the key; whole blocks."""

    start: int
    end: int
    records: int
    oldest_ms: int
    newest_ms: int


def format_key_filters(identity: SegmentIdentity, blocks: Sequence[Block]) -> bytes:
    """The content of a file."""
    out = bytearray(_HEADER.pack(_MAGIC, HASH_ID, PROBES, *identity, len(blocks)))
    for block in blocks:
        bit_count = len(block.hashes) * BITS_PER_KEY
        out += _ROW.pack(*block[:3], block.records, bit_count, block.is_transactional)
    for block in blocks:
        if block.hashes:
            out += key_filter(block.hashes, len(block.hashes) * BITS_PER_KEY, PROBES)
    return bytes(out + _CRC.pack(crc32c(out)))


class KeyFilters(NamedTuple):
    """A file that was read: its rows, and the places of the filters in `data`."""

    identity: SegmentIdentity
    rows: Sequence[tuple[int, int, int, int, int, int]]
    places: array[int]
    data: bytes

    def without(
        self, keys: Iterable[bytes], start: int, end: int, *, with_transactions: bool = True
    ) -> list[KeyFreeRange]:
        """The ranges between two offsets in which no record has any of the keys; adjacent blocks are joined.

        Without `with_transactions`, blocks with records of transactions count as if they had the keys: the reader does
        not see all of their records.
        """
        hashes = array("Q", [hash_key(SECRET, key) & _HASH_BITS for key in keys])
        flags = filters_with(self.data, self.places, hashes, PROBES)
        found: list[KeyFreeRange] = []
        starts = [row[0] for row in self.rows]
        for row, may_have, block_end in zip(self.rows, flags, [*starts[1:], self.identity.end_offset], strict=True):
            block_start, oldest_ms, newest_ms, records, _, is_transactional = row
            if may_have or block_start < start or block_end > end or (is_transactional and not with_transactions):
                continue
            join(found, KeyFreeRange(block_start, block_end, records, oldest_ms, newest_ms))
        return found


def join(found: list[KeyFreeRange], added: KeyFreeRange) -> None:
    """Append a range, or extend the last one if they are adjacent."""
    if not found or found[-1].end != added.start:
        found.append(added)
        return
    last = found[-1]
    if not last.records or not added.records:
        times = (added if added.records else last)[3:]
    else:
        times = (min(last.oldest_ms, added.oldest_ms), max(last.newest_ms, added.newest_ms))
    found[-1] = KeyFreeRange(last.start, added.end, last.records + added.records, *times)


def read_key_filters(disk: Disk, path: str, identity: SegmentIdentity) -> KeyFilters | None:
    """The filters of a segment; None if the file is absent, damaged, or not of the segment as it is.

    Blocks. Raises OSError, but not for a missing file.
    """
    try:
        data = disk.read_bytes(path) if disk.size(path) <= MAX_FILE_BYTES else b""
    except FileNotFoundError:
        return None
    body = len(data) - _CRC.size
    if body < _HEADER.size or _CRC.unpack_from(data, body)[0] != crc32c(memoryview(data)[:body]):
        return None
    magic, hash_id, probes, *numbers, count = _HEADER.unpack_from(data)
    position = _HEADER.size + count * _ROW.size
    if (magic, hash_id, probes, tuple(numbers)) != (_MAGIC, HASH_ID, PROBES, identity) or position > body:
        return None
    rows = list(_ROW.iter_unpack(memoryview(data)[_HEADER.size : position]))
    places = array("q")
    for row in rows:
        places.extend((position, row[4]))
        position += (row[4] + 7) // 8
    return KeyFilters(identity, rows, places, data) if position == body else None
