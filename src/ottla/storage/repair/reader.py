"""Read-only parser of a partition's files without a broker: batches, indexes, snapshots, checkpoints.

It reads open binary streams or bytes of its caller, and checks indexes. It never changes a file and trusts no content:
the first invalid byte ends a segment with `SegmentDamage`.

Callers: `ottla log dump` and `ottla log scrub`, the pipeline's segment source, and `ottla cluster repair-epoch`. The
command groups (`ottla.cli`) may import only this module and `segment_scrub` from `ottla.storage`.

Not here: output (`ottla.cli`), and repair of segments (`storage.recovery` at broker start, `replacement` at run time).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from ottla.common.errors import KafkaError, OttlaError
from ottla.record.batch import (
    BATCH_HEADER,
    BATCH_LENGTH,
    CRC,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_V2,
    MIN_BATCH_LENGTH,
    BatchView,
)
from ottla.record.compression import CODEC_NAMES
from ottla.record.legacy.message_set import read_entry
from ottla.record.legacy.stored import SMALLEST_SIZE, batch_of_messages, header_of_message, is_message
from ottla.storage.files import names
from ottla.storage.files.checkpoints import CheckpointCorruption, parse_epochs, parse_offsets
from ottla.storage.log.producer_state import ProducerEntry, SnapshotCorruption, decode_snapshot, open_transactions
from ottla.storage.repair.segment_scrub import IndexCheck
from ottla.storage.segment.index import offset_entries, time_entries
from ottla.storage.segment.transaction_index import ENTRY
from ottla.storage.segment.transactions import CompletedTransaction

_ABORTED_VERSION = 0


class SegmentDamage(OttlaError):
    """A segment has no valid batch at `position`."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"position {position}: {reason}")
        self.position = position
        self.reason = reason


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A whole batch and its position in the file; `batch.crc_matches()` checks the CRC.

    A message of format v0 or v1 with a valid CRC is returned as a batch with the same records.
    """

    position: int
    size_bytes: int
    magic: int
    crc: int
    compression: str
    batch: BatchView


def base_offset_of(file_name: str) -> int | None:
    """Return the base offset in the name of a segment, index or snapshot file; None for other names."""
    for suffix in (*names.SEGMENT_SUFFIXES, names.SNAPSHOT_SUFFIX):
        offset = names.parse_offset(file_name, suffix)
        if offset is not None:
            return offset
    return None


def iter_segment(stream: BinaryIO) -> Iterator[StoredBatch]:
    """Iterate over the batches of a segment or snapshot file.

    Raises SegmentDamage at the first byte that is not a whole batch or message, OSError.
    """
    size = stream.seek(0, 2)
    position = 0
    while position < size:
        stream.seek(position)
        head = stream.read(HEADER_SIZE)
        if is_message(head, 0):
            stream.seek(position)
            stored = _message(stream, position, head, size - position)
            yield stored
            position += stored.size_bytes
            continue
        if len(head) < HEADER_SIZE:
            raise SegmentDamage(position, f"{len(head)} bytes are not a batch header")
        header = BATCH_HEADER.unpack(head)
        if header[MAGIC] != MAGIC_V2:
            raise SegmentDamage(position, f"magic {header[MAGIC]} names no message format")
        if header[BATCH_LENGTH] < MIN_BATCH_LENGTH:
            raise SegmentDamage(position, f"a batch length of {header[BATCH_LENGTH]} is impossible")
        length = header[BATCH_LENGTH] + LOG_OVERHEAD
        if length > size - position:
            raise SegmentDamage(position, f"a batch of {length} bytes is cut short after {size - position}")
        batch = BatchView(head + stream.read(length - HEADER_SIZE))
        yield StoredBatch(position, length, MAGIC_V2, batch.crc, batch.compression, batch)
        position += length


def _message(stream: BinaryIO, position: int, head: bytes, left: int) -> StoredBatch:
    """Return the message of format v0 or v1 at the position of `stream`; its first bytes are `head`."""
    if len(head) < SMALLEST_SIZE:
        raise SegmentDamage(position, f"{len(head)} bytes are not a message")
    header = header_of_message(head, 0)
    length = header[BATCH_LENGTH] + LOG_OVERHEAD
    if not SMALLEST_SIZE <= length <= left:
        raise SegmentDamage(position, f"a message of {length} bytes does not fit into the {left} that are left")
    try:
        entry = read_entry(memoryview(stream.read(length)), 0, length)
        if entry is None:
            raise SegmentDamage(position, "the file ends inside a message")
        batch = batch_of_messages([entry])
    except KafkaError as error:
        raise SegmentDamage(position, error.message) from error
    codec = CODEC_NAMES[entry.codec_id]  # the codec that it was read with
    return StoredBatch(position, length, header[MAGIC], header[CRC], codec, batch)


def read_offset_index(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """Return (last offset of a batch, its position) entries; the zeros of a preallocated rest are ignored."""
    return list(offset_entries((data,), base_offset))


def read_time_index(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """Return (timestamp, last offset of its batch) entries; the zeros of a preallocated rest are ignored."""
    return list(time_entries((data,), base_offset))


def read_transaction_index(data: bytes) -> list[CompletedTransaction]:
    """Return the aborted transactions in a `.txnindex` file; raises SegmentDamage at the first invalid entry."""
    aborted = []
    for position in range(0, len(data), ENTRY.size):
        if len(data) - position < ENTRY.size:
            raise SegmentDamage(position, f"{len(data) - position} bytes are not an entry")
        version, *fields = ENTRY.unpack_from(data, position)
        if version != _ABORTED_VERSION:
            raise SegmentDamage(position, f"an entry has version {version}")
        aborted.append(CompletedTransaction(*fields))
    return aborted


def check_indexes(
    batches: Iterable[StoredBatch], offset_index: list[tuple[int, int]], time_index: list[tuple[int, int]]
) -> list[str]:
    """Return the problems of a segment's indexes, one sentence for each entry; empty if they are correct."""
    problems: list[str] = []
    check = IndexCheck(offset_index, time_index, problems.append)
    for stored in batches:
        check.note(stored.position, stored.size_bytes, stored.batch.last_offset, stored.batch.max_timestamp)
    check.finish()
    return problems


def read_producer_snapshot(data: bytes) -> dict[int, ProducerEntry]:
    """Return producer id -> state of a `.snapshot` file; raises SegmentDamage."""
    try:
        return decode_snapshot(data)
    except SnapshotCorruption as error:
        raise SegmentDamage(0, str(error)) from error


def open_before(base_offset: int, snapshot: bytes) -> dict[int, int] | None:
    """Return producer id -> first offset of the transactions open at a segment's start.

    They are from the producer snapshot of that name; None if it is lost or damaged.
    """
    if not base_offset:
        return {}
    try:
        return open_transactions(decode_snapshot(snapshot))
    except SnapshotCorruption:
        return None


def read_cleaned(data: bytes, path: str) -> set[str]:
    """Return the partition directory names in a `cleaner-offset-checkpoint`; raises SegmentDamage."""
    try:
        return {names.partition_dir(*partition) for partition in parse_offsets(data, path)}
    except CheckpointCorruption as error:
        raise SegmentDamage(0, str(error)) from error


def read_log_starts(data: bytes, path: str) -> dict[str, int]:
    """Return log start offsets inside of the first segment, by partition directory name: the content of
    `log-start-offset-checkpoint`. Raises SegmentDamage.
    """
    try:
        return {names.partition_dir(*partition): start for partition, start in parse_offsets(data, path).items()}
    except CheckpointCorruption as error:
        raise SegmentDamage(0, str(error)) from error


def read_leader_epochs(data: bytes, path: str) -> list[tuple[int, int]]:
    """Return the (epoch, start offset) entries of a `leader-epoch-checkpoint`; raises SegmentDamage with `path`."""
    try:
        return parse_epochs(data, path)
    except CheckpointCorruption as error:
        raise SegmentDamage(0, str(error)) from error
