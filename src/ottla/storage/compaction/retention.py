"""Retention of records when a log is cleaned: the surviving records of a batch, and the batch that contains them.

Rules of Apache Kafka 4.4:
- the latest record of a key is retained, and every record beyond the offset map; a record without a key is dropped;
- a latest record without a value (a tombstone) is retained until the delete horizon of its batch. The first pass that
  meets a tombstone, or a marker without remaining records, sets the horizon, in place of the base timestamp (KIP-534);
- aborted records are dropped; a marker is dropped after the horizon;
- the last batch of an active producer is retained, if need be empty, since it has the last sequence number. So is the
  last batch of the pass, which has the last offset. Base and last offset of a batch never change.

A batch with only surviving records is copied unchanged. The base timestamp does not change either, so that records are
copied unchanged: Apache Kafka sets it to that of the first remaining record, which no reader can observe. A batch is
rewritten only if its checksum is correct: a damaged batch must not get a valid checksum.

Messages of formats v0 and v1 stay in their format; a wrapper with partly surviving messages is rewritten with its
codec. They have no field for a delete horizon, and no empty messages. So their tombstones are dropped once their
segment is older by `delete.retention.ms` than the last segment cleaned before, and the last record of the last message
of a pass is always retained, where Apache Kafka's cleaner gives up the partition.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from ottla.common.platform.disk import Buffer
from ottla.record.batch import (
    ATTRIBUTES,
    ATTRIBUTES_POSITION,
    BASE_TIMESTAMP,
    BATCH_HEADER,
    BATCH_LENGTH,
    COMPRESSION_MASK,
    CRC,
    CRC_POSITION,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_V2,
    MAX_TIMESTAMP,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    RECORDS_COUNT,
    BatchView,
    unsupported_magic,
)
from ottla.record.checksum import crc32c
from ottla.record.compression import compress, decompress
from ottla.record.errors import CorruptBatch, InvalidRecord
from ottla.record.keys import gather
from ottla.record.legacy.message_set import Unpack
from ottla.record.legacy.stored import MessageView
from ottla.record.varint import write_varint
from ottla.record.walk import INDEX_WIDTH, index_records
from ottla.storage.compaction.offset_map import OffsetMap
from ottla.storage.compaction.transactions import CleanedTransactions

_CRC = Struct(">I")
_UINT64 = (1 << 64) - 1
_INT64_SIGN = 1 << 63
_OFFSET_DELTA, _TIMESTAMP_DELTA, _, _, _, _, _HEADERS_START, _HEADERS_LENGTH = range(INDEX_WIDTH)


class LastRecord(NamedTuple):
    """Latest batch of a producer that a log still remembers."""

    last_data_offset: int
    """-1 if only a marker of its epoch is known."""
    producer_epoch: int


class Rules(NamedTuple):
    """Parameters of one cleaning pass."""

    now_ms: int
    delete_retention_ms: int
    old_tombstones_horizon_ms: int
    """Tombstones of formats v0 and v1 are dropped from segments last written at this time or before."""
    log_start_offset: int
    """Records below were deleted, and are retained until their segment is deleted."""
    end_offset: int
    """End of the cleanable range."""
    last_records: Mapping[int, LastRecord]
    """By producer id."""
    max_body_bytes: int
    """Limit of a batch's decompressed records."""


def batch_records(batch: BatchView, max_body_bytes: int) -> tuple[int, Buffer, array[int]]:
    """Return the base of the row offsets, the decompressed records of a batch, and their index
    (`record.walk.index_records`); for an old message only the keys.

    Raises KafkaError for a damaged batch.
    """
    if isinstance(batch, MessageView):
        return batch.index_records(_bounded(max_body_bytes))
    body, rows = _records(batch, max_body_bytes)
    return batch.base_offset, body, rows


def _bounded(max_body_bytes: int) -> Unpack:
    return lambda codec_id, data: decompress(codec_id, data, max_body_bytes)


def _records(batch: BatchView, max_body_bytes: int) -> tuple[memoryview, array[int]]:
    if batch.magic != MAGIC_V2:
        raise unsupported_magic(batch.magic, batch.position)
    if not batch.crc_matches():
        raise CorruptBatch(f"the CRC of the batch at offset {batch.base_offset} does not match", batch.position)
    body = batch.body(max_body_bytes)
    rows = index_records(body, 0, len(body), batch.records_count)
    if rows and rows[_OFFSET_DELTA - INDEX_WIDTH] > batch.last_offset_delta:
        raise InvalidRecord(f"a record of the batch at offset {batch.base_offset} lies beyond its batch")
    return body, rows


class BatchFilter:
    """Processes the batches of a log in order, from its beginning on."""

    __slots__ = ("_map", "_rules", "_transactions", "keyless_count")

    def __init__(self, offset_map: OffsetMap, transactions: CleanedTransactions, rules: Rules) -> None:
        self._map = offset_map
        self._transactions = transactions
        self._rules = rules
        self.keyless_count = 0
        """Number of dropped records without a key."""

    def apply(self, batch: BatchView, mtime_ms: int) -> memoryview | bytearray | None:
        """Return the surviving part of a batch: a memoryview of it if that is everything, new bytes, or None.

        `mtime_ms`: last write of its segment. Raises KafkaError if it is damaged.
        """
        if batch.last_offset < self._rules.log_start_offset:
            return _whole(batch)
        if isinstance(batch, MessageView):
            return self._apply_to_message(batch, mtime_ms)
        if batch.magic != MAGIC_V2:
            raise unsupported_magic(batch.magic, batch.position)
        discardable = (
            self._transactions.ends_nothing(batch) if batch.is_control else self._transactions.is_aborted(batch)
        )
        horizon = batch.delete_horizon_ms
        discarded = discardable
        if batch.is_control:
            discarded = discardable and horizon is not None and horizon <= self._rules.now_ms
        # The producer's last sequence, and the end of the cleaned range, are only known from these batches.
        must_stay = batch.next_offset == self._rules.end_offset or self._is_last_of_producer(batch)
        if discarded:
            return _emptied(batch) if must_stay else None
        body, rows = _records(batch, self._rules.max_body_bytes)
        if batch.is_control:
            kept = array("q", range(batch.records_count))
            needs_horizon = discardable and horizon is None
        else:
            keeps_tombstones = horizon is None or self._rules.now_ms < horizon
            kept, keyless_count, tombstone_count = self._map.surviving(
                body, rows, batch.base_offset, keeps_tombstones=keeps_tombstones
            )
            self.keyless_count += keyless_count
            # The first pass only sets the horizon: consumers get delete.retention.ms to read the tombstones.
            needs_horizon = horizon is None and tombstone_count > 0
        if not kept:
            return _emptied(batch) if must_stay else None
        if len(kept) == batch.records_count and not needs_horizon:
            return _whole(batch)
        new_horizon = self._rules.now_ms + self._rules.delete_retention_ms if needs_horizon else None
        return rewritten_batch(batch, body, rows, kept, new_horizon)

    def _apply_to_message(self, message: MessageView, mtime_ms: int) -> memoryview | bytearray | None:
        unpack = _bounded(self._rules.max_body_bytes)
        base_offset, keys, rows = message.index_records(unpack)
        kept, keyless_count, _ = self._map.surviving(
            keys, rows, base_offset, keeps_tombstones=mtime_ms > self._rules.old_tombstones_horizon_ms
        )
        self.keyless_count += keyless_count
        count = len(rows) // INDEX_WIDTH
        if message.next_offset == self._rules.end_offset and (not kept or kept[-1] != count - 1):
            kept.append(count - 1)
        if not kept:
            return None
        return _whole(message) if len(kept) == count else message.with_records(kept, unpack)

    def _is_last_of_producer(self, batch: BatchView) -> bool:
        if batch.producer_id == NO_PRODUCER_ID:
            return False
        last = self._rules.last_records.get(batch.producer_id)
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.producer_epoch


def _whole(batch: BatchView) -> memoryview:
    return memoryview(batch.buffer)[batch.position : batch.end]


def _emptied(batch: BatchView) -> memoryview | bytearray:
    return empty_batch(batch) if batch.records_count else _whole(batch)


def empty_batch(batch: BatchView) -> bytearray:
    """Return the header of `batch` for no records: producer, sequences, offsets and epochs are unchanged."""
    header = list(batch.header)
    header[BATCH_LENGTH] = HEADER_SIZE - LOG_OVERHEAD
    header[ATTRIBUTES] = batch.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK)
    header[BASE_TIMESTAMP] = NO_TIMESTAMP
    header[RECORDS_COUNT] = 0
    return _sealed(header, b"")


def rewritten_batch(
    batch: BatchView, body: memoryview, rows: array[int], kept: array[int], new_horizon_ms: int | None
) -> bytearray:
    """Return `batch` with only the records numbered in `kept`, in its codec; optionally with a delete horizon."""
    out, newest = gather(body, rows, kept, batch.base_timestamp)
    if new_horizon_ms is not None:
        out = _moved(out, len(kept), batch.base_timestamp - new_horizon_ms)
    header = list(batch.header)
    if new_horizon_ms is not None:
        header[ATTRIBUTES] |= DELETE_HORIZON_MASK
        header[BASE_TIMESTAMP] = new_horizon_ms
    if batch.timestamp_type != LOG_APPEND_TIME:
        header[MAX_TIMESTAMP] = newest
    header[RECORDS_COUNT] = len(kept)
    data = out if not batch.codec_id else compress(batch.codec_id, out)
    header[BATCH_LENGTH] = HEADER_SIZE - LOG_OVERHEAD + len(data)
    return _sealed(header, data)


def _moved(body: bytearray, count: int, shift: int) -> bytearray:
    """Copy `count` records of `body` with shifted timestamps."""
    rows = index_records(body, 0, len(body), count)
    out = bytearray()
    start = 0
    with memoryview(body) as view:
        for at in range(0, len(rows), INDEX_WIDTH):
            end = rows[at + _HEADERS_START] + rows[at + _HEADERS_LENGTH]
            _write_at(out, view, start, end, _int64(rows[at + _TIMESTAMP_DELTA] + shift))
            start = end
    return out


def _write_at(out: bytearray, body: memoryview, start: int, end: int, timestamp_delta: int) -> None:
    """Write the record of `body[start:end]` with another timestamp."""
    at = _behind_varint(body, start)
    record = bytearray(body[at : at + 1])  # attributes
    write_varint(record, timestamp_delta)
    record += body[_behind_varint(body, at + 1) : end]
    write_varint(out, len(record))
    out += record


def _behind_varint(body: memoryview, at: int) -> int:
    while body[at] & 0x80:
        at += 1
    return at + 1


def _int64(value: int) -> int:
    """Return `value` wrapped to a signed 64-bit number: deltas of a producer may overflow."""
    return ((value & _UINT64) ^ _INT64_SIGN) - _INT64_SIGN


def _sealed(header: list[int], data: Buffer) -> bytearray:
    header[CRC] = 0
    batch = bytearray(HEADER_SIZE)
    BATCH_HEADER.pack_into(batch, 0, *header)
    batch += data
    with memoryview(batch) as view:
        _CRC.pack_into(batch, CRC_POSITION, crc32c(view[ATTRIBUTES_POSITION:]))
    return batch
