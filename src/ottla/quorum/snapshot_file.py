"""Snapshots of the metadata log (KIP-630): record batches that contain the image as of one offset.

A file is named `<end offset>-<epoch>.checkpoint`: it covers everything before that offset, and the epoch is that of the
last batch. It begins with a control batch (header, voter protocol, voters), ends with the footer, and its offsets count
from 0.

Invariants:
- A file under that name is complete, since it is written under another one; the reader checks nevertheless.
- A batch has at most `MAX_BATCH_BYTES`, unless one record alone has more: the reader's limit is far above both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ottla.common.errors import KafkaError, ProtocolError
from ottla.common.platform.disk import Buffer
from ottla.metadata.bounds import MAX_BATCH_BYTES, record_bytes
from ottla.metadata.records import ApiMessageAndVersion, decode_record, encode_record
from ottla.quorum.control import read_voters, snapshot_footer, snapshot_header, voter_records
from ottla.quorum.raft_types import Voter
from ottla.record.batch import BatchView, iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.record.compression import DEFAULT_MAX_BYTES
from ottla.record.control import ControlRecordType, control_record_type

SUFFIX = ".checkpoint"


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


class Snapshot(NamedTuple):
    """The content of a snapshot."""

    records: list[ApiMessageAndVersion]
    voters: tuple[Voter, ...]


def check_snapshot(data: Buffer) -> None:
    """Raise ProtocolError unless `data` consists of complete, readable batches from header to footer.

    Far cheaper than `read_snapshot`: records are not decoded.
    """
    last: BatchView | None = None
    end = 0
    try:
        for last in iter_batches(data):
            if last.size_bytes > DEFAULT_MAX_BYTES:
                raise ProtocolError(f"the batch at position {last.position} has {last.size_bytes} bytes")
            if not last.crc_matches():
                raise ProtocolError(f"the batch at position {last.position} is damaged")
            if not end and not last.is_control:
                raise ProtocolError("the header is missing")
            end = last.end
    except KafkaError as error:
        raise ProtocolError(f"damaged batch: {error}") from error
    if last is None or end != len(data) or not last.is_control:
        raise ProtocolError("the footer is missing")


def read_snapshot(data: bytes) -> Snapshot:
    """Inverse of the builder; raises ProtocolError if `data` is not a complete snapshot."""
    records: list[ApiMessageAndVersion] = []
    voters: tuple[Voter, ...] = ()
    kinds: list[ControlRecordType] = []
    try:
        for batch in iter_batches(data):
            if not batch.crc_matches():
                raise ProtocolError(f"the batch at position {batch.position} is damaged")
            for record in batch.records():
                if not batch.is_control:
                    records.append(decode_record(record.value or b""))
                    continue
                kinds.append(control_record_type(record))
                if kinds[-1] is ControlRecordType.KRAFT_VOTERS:
                    voters = read_voters(record)
    except KafkaError as error:
        raise ProtocolError(f"damaged batch: {error}") from error
    if (
        not kinds
        or kinds[0] is not ControlRecordType.SNAPSHOT_HEADER
        or kinds[-1] is not ControlRecordType.SNAPSHOT_FOOTER
    ):
        raise ProtocolError("header or footer is missing")
    return Snapshot(records, voters)
