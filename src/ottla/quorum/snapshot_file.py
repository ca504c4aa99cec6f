"""Snapshots of the metadata log (KIP-630): record batches that contain the image as of one offset.

A file is named `<end offset>-<epoch>.checkpoint`: it covers everything before that offset, and the epoch is that of the
last batch. It begins with a control batch (header, voter protocol, voters), ends with the footer, and its offsets count
from 0.

Invariants:
- A file under that name is complete, since it is written under another one; the reader checks nevertheless.
- A batch has at most `MAX_BATCH_BYTES`, unless one record alone has more: the reader's limit is far above both.
- Neither the file nor its records are in memory as a whole while a start reads it: with a million partitions they would
  take several times the memory of the image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from ottla.common.errors import KafkaError, ProtocolError
from ottla.common.platform.disk import Buffer, File
from ottla.metadata.bounds import MAX_BATCH_BYTES, record_bytes
from ottla.metadata.records import ApiMessageAndVersion, decode_record, encode_record
from ottla.quorum.control import read_voters, snapshot_footer, snapshot_header, voter_records
from ottla.quorum.raft_types import Voter
from ottla.record.batch import BatchView, iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.record.compression import DEFAULT_MAX_BYTES
from ottla.record.control import ControlRecordType, control_record_type

SUFFIX = ".checkpoint"
_READ_BYTES = 1024 * 1024
_RECORDS_PER_PART = 1000


class SnapshotId(NamedTuple):
    """End offset and epoch of a snapshot; ordered by age."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


BOOTSTRAP = SnapshotId(0, 0)
"""The snapshot that formatting writes: the initial voters (KIP-853), and records for the first active controller
(KIP-1170).
"""


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """The id in a file name; None for any other name."""
    offset, dash, epoch = name.removesuffix(SUFFIX).partition("-")
    if not name.endswith(SUFFIX) or not dash or not (offset + epoch).isascii() or not (offset + epoch).isdigit():
        return None
    if len(offset) != 20 or len(epoch) != 10:
        return None
    return SnapshotId(int(offset), int(epoch))


class SnapshotBuilder:
    """Builds a snapshot in steps, so that a large one never blocks the loop for long."""

    __slots__ = ("_epoch", "_out", "_records", "_timestamp_ms")

    def __init__(self, epoch: int, last_timestamp_ms: int, timestamp_ms: int, voters: Sequence[Voter]) -> None:
        """`last_timestamp_ms` of the last batch contained; `timestamp_ms` is now."""
        self._epoch = epoch
        self._timestamp_ms = timestamp_ms
        self._out = bytearray()
        self._records = 0
        header = [snapshot_header(last_timestamp_ms, timestamp_ms)]
        if voters:
            header += voter_records(voters, timestamp_ms)
        self._add(header, is_control=True)

    def add(self, records: Iterable[ApiMessageAndVersion]) -> None:
        """Add records in as many batches as their size requires; none for no records."""
        self.add_step(iter(records), None)

    def add_step(self, records: Iterator[ApiMessageAndVersion], count: int | None) -> bool:
        """Add the next `count` records (None: all), and return whether more may remain. Splits batches by size."""
        data: list[RecordData] = []
        size = taken = 0
        for record in islice(records, count):
            taken += 1
            value = encode_record(record)
            size += record_bytes(value)
            if data and size > MAX_BATCH_BYTES:
                self._add(data, is_control=False)
                data, size = [], record_bytes(value)
            data.append(RecordData(self._timestamp_ms, None, value))
        if data:
            self._add(data, is_control=False)
        return taken == count

    def finish(self) -> bytes:
        """The content of the file."""
        self._add([snapshot_footer(self._timestamp_ms)], is_control=True)
        return bytes(self._out)

    def _add(self, data: Sequence[RecordData], *, is_control: bool) -> None:
        batch = build_batch(data, base_offset=self._records, leader_epoch=self._epoch, is_control=is_control)
        self._records += len(data)
        self._out += batch


def bootstrap_snapshot(voters: Sequence[Voter], records: Iterable[ApiMessageAndVersion], now_ms: int) -> bytes:
    """The content of the file named `BOOTSTRAP`."""
    builder = SnapshotBuilder(BOOTSTRAP.epoch, now_ms, now_ms, voters)
    builder.add(records)
    return builder.finish()


SnapshotBatches = Iterator[tuple[int, BatchView]]
"""The batches of a snapshot, with their positions in the file."""


def batches_of(data: Buffer) -> SnapshotBatches:
    """The batches of a snapshot in memory. Raises ProtocolError, also for a last batch that is cut short."""
    end = 0
    try:
        for batch in iter_batches(data):
            yield batch.position, batch
            end = batch.end
    except KafkaError as error:
        raise ProtocolError(f"damaged batch: {error}") from error
    if end != len(data):
        raise ProtocolError(f"the batch at position {end} is cut short")


def batches_in(file: File) -> SnapshotBatches:
    """The batches of a snapshot file, which is read in pieces; raises as `batches_of`, and OSError."""
    position, size, length = 0, file.size(), _READ_BYTES
    while position < size:
        data = file.read(min(length, size - position), position)
        end = needed = 0
        try:
            for batch in iter_batches(data):
                yield position + batch.position, batch
                end = batch.end
            if not end:
                needed = _bounded_size(position, BatchView(data))
        except KafkaError as error:
            raise ProtocolError(f"damaged batch, in the bytes from position {position} on: {error}") from error
        if end:
            position, length = position + end, _READ_BYTES
        elif length < needed <= size - position:
            length = needed  # one batch that is larger than a piece
        else:
            raise ProtocolError(f"the batch at position {position} is cut short")


def _bounded_size(position: int, batch: BatchView) -> int:
    if batch.size_bytes > DEFAULT_MAX_BYTES:
        raise ProtocolError(f"the batch at position {position} has {batch.size_bytes} bytes")
    return batch.size_bytes


def _intact(batches: SnapshotBatches) -> Iterator[BatchView]:
    for position, batch in batches:
        _bounded_size(position, batch)
        if not batch.crc_matches():
            raise ProtocolError(f"the batch at position {position} is damaged")
        yield batch


def check_snapshot(data: Buffer) -> None:
    """Raise ProtocolError unless `data` consists of complete, readable batches from header to footer.

    Far cheaper than `replay_snapshot`: records are not decoded.
    """
    last: BatchView | None = None
    for batch in _intact(batches_of(data)):
        if last is None and not batch.is_control:
            raise ProtocolError("the header is missing")
        last = batch
    if last is None or not last.is_control:
        raise ProtocolError("the footer is missing")


def replay_snapshot(batches: SnapshotBatches, replay: Callable[[ApiMessageAndVersion], object]) -> tuple[Voter, ...]:
    """Call `replay` with each record, in order, and return the voters. Only a part of a batch is decoded at a time.

    The snapshot is known to be complete when this returns: until then the caller must not use the records. Raises
    ProtocolError for an incomplete or damaged snapshot, and the errors of `batches` and `replay`.
    """
    voters: tuple[Voter, ...] = ()
    first: ControlRecordType | None = None
    last: ControlRecordType | None = None
    try:
        for batch in _intact(batches):
            for record in chain.from_iterable(batch.records_in_parts(_RECORDS_PER_PART)):
                if not batch.is_control:
                    replay(decode_record(record.value or b""))
                    continue
                last = control_record_type(record)
                if first is None:
                    first = last
                if last is ControlRecordType.KRAFT_VOTERS:
                    voters = read_voters(record)
    except KafkaError as error:
        raise ProtocolError(f"damaged batch: {error}") from error
    if first is not ControlRecordType.SNAPSHOT_HEADER or last is not ControlRecordType.SNAPSHOT_FOOTER:
        raise ProtocolError("header or footer is missing")
    return voters
