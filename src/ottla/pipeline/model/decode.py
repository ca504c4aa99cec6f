"""Record batches v2 to Arrow: one decoder for fetched bytes and for segment files.

Nothing is built for a single record: the walk of `ottla.record` returns an index of int64 rows, from which numpy and
Arrow build whole columns. Keys and values are cut out of the batch bodies by one `take` on an array that overlays them
(its offsets are the borders of keys, gaps and values in turn), so bytes are copied once, in native code.

**Invariants:** every batch that gives rows had its CRC checked; rows are in offset order and only from the requested
range; no row of a control batch and, where aborted transactions are given, none of theirs; a record that the columns
can't represent becomes a dead letter, never another value; memory is bounded by `MAX_BODY_BYTES` for one batch and
`POOL_BYTES` beyond it.

Not supported: formats v0 and v1 (an error names them). Keys and values are not interpreted.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.disk import Buffer
from ottla.pipeline.model.arrays import binaries, flags, numbers, repeated, texts
from ottla.record.batch import LOG_APPEND_TIME, NO_TIMESTAMP, BatchView
from ottla.record.errors import InvalidRecord
from ottla.record.legacy.stored import iter_any_batches
from ottla.record.transactions import AbortedEntry, TransactionFilter
from ottla.record.walk import INDEX_WIDTH, index_records, parse_headers

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS_TYPE),
    ]
)
"""The columns of a raw topic. `timestamp_type`: 0 CreateTime, 1 LogAppendTime; a record without timestamp has null."""

DEAD_LETTER_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS_TYPE),
        ("reason", pa.string()),
    ]
)
"""A record that SCHEMA can't hold, and why. `timestamp_ms` is as stored: milliseconds from the epoch."""

MAX_BODY_BYTES = 1 << 30
"""Maximum size of a decompressed batch; also keeps Arrow's 32-bit offsets in range."""
POOL_BYTES = 16 << 20
POOL_ROWS = 100_000

MAX_TIMESTAMP_MS = 253_402_300_799_999
"""The end of the year 9999: many readers fail on anything later."""

POSITION_COLUMNS = [2, 4, 6]
"""Columns of the walk's index that are positions: of key, value and headers."""

Int64s = npt.NDArray[np.int64]


class DecodeError(KafkaError):
    """Stored bytes that can't be decoded; the message names topic, partition and offset."""


@dataclass(slots=True)
class DecodeResult:
    """Result of one call. `next_offset` is the offset to resume at: after the last whole batch, at most the range's
    end."""

    next_offset: int
    batches: list[pa.RecordBatch] = field(default_factory=list)
    dead_letters: list[pa.RecordBatch] = field(default_factory=list)
    """By DEAD_LETTER_SCHEMA; their records are not in `batches`."""
    rows: int = 0
    body_bytes: int = 0
    """Bytes of records after decompression."""


class _Pool:
    """Concatenated bodies of several batches, with the index of all their records.

    Plain lists of one entry a batch, so that topics with one record a batch stay cheap.
    """

    __slots__ = ("append_times", "base_offsets", "base_timestamps", "counts", "data", "index", "row_count", "starts")

    def __init__(self) -> None:
        self.data = bytearray()
        self.index = array("q")
        self.counts: list[int] = []
        self.starts: list[int] = []
        """Where each body starts in `data`."""
        self.base_offsets: list[int] = []
        self.base_timestamps: list[int] = []
        self.append_times: list[int] = []
        """The batch's maxTimestamp under LogAppendTime, else -1."""
        self.row_count = 0

    def add(self, batch: BatchView, body: Buffer) -> None:
        """Add the records of one batch; raises InvalidRecord."""
        index = index_records(body, 0, len(body), batch.records_count)
        if index and index[-INDEX_WIDTH] > batch.last_offset_delta:
            raise InvalidRecord("the last record lies beyond the last offset of its batch")
        count = len(index) // INDEX_WIDTH
        self.index.extend(index)
        self.counts.append(count)
        self.starts.append(len(self.data))
        self.base_offsets.append(batch.base_offset)
        self.base_timestamps.append(batch.base_timestamp)
        self.append_times.append(batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else -1)
        self.row_count += count
        self.data += body

    def per_row(self, per_batch: list[int]) -> Int64s:
        """One value a batch, repeated for each of its records."""
        return np.repeat(np.array(per_batch, np.int64), self.counts)

    def shifted_index(self) -> Int64s:
        """The index of all records, with positions in `data`."""
        index = np.frombuffer(self.index, np.int64).reshape(-1, INDEX_WIDTH).copy()
        index[:, POSITION_COLUMNS] += self.per_row(self.starts)[:, np.newaxis]
        return index

    @property
    def full(self) -> bool:
        return len(self.data) >= POOL_BYTES or self.row_count >= POOL_ROWS


def decode(
    records: Buffer,
    *,
    topic: str,
    partition: int,
    start_offset: int,
    end_offset: int,
    aborted: Sequence[AbortedEntry] = (),
) -> DecodeResult:
    """Rows of `records` with offsets in [start_offset, end_offset); an incomplete batch at the end is ignored.

    `aborted`: all aborted transactions that overlap these bytes, as in a Fetch response under read_committed.
    Raises DecodeError.
    """
    decoded = DecodeResult(start_offset)
    pool = _Pool()
    for batch in _kept_batches(records, topic, partition, end_offset, aborted, decoded):
        if batch.last_offset < start_offset:
            continue
        body = _body(batch, topic, partition)
        if pool.row_count and len(pool.data) + len(body) > MAX_BODY_BYTES:
            _flush(pool, topic, partition, start_offset, end_offset, decoded)
            pool = _Pool()
        try:
            pool.add(batch, body)
        except KafkaError as error:
            raise _broken(topic, partition, batch.base_offset, error.message) from error
        decoded.body_bytes += len(body)
        if pool.full:
            _flush(pool, topic, partition, start_offset, end_offset, decoded)
            pool = _Pool()
    if pool.row_count:
        _flush(pool, topic, partition, start_offset, end_offset, decoded)
    return decoded


def _kept_batches(
    records: Buffer, topic: str, partition: int, end_offset: int, aborted: Sequence[AbortedEntry], decoded: DecodeResult
) -> Iterator[BatchView]:
    """Batches below `end_offset` except control and aborted ones; advances `decoded.next_offset` past all of them."""
    transactions = TransactionFilter(aborted)
    for batch in _whole_batches(records, topic, partition, decoded):
        if batch.base_offset >= end_offset:
            decoded.next_offset = end_offset
            return
        if not batch.crc_matches():
            raise _broken(topic, partition, batch.base_offset, "its checksum does not match")
        decoded.next_offset = max(decoded.next_offset, min(batch.next_offset, end_offset))
        if _passes(transactions, batch, topic, partition):
            yield batch


def _whole_batches(records: Buffer, topic: str, partition: int, decoded: DecodeResult) -> Iterator[BatchView]:
    try:
        yield from iter_any_batches(records)
    except KafkaError as error:
        raise _broken(topic, partition, decoded.next_offset, error.message) from error


def _passes(transactions: TransactionFilter, batch: BatchView, topic: str, partition: int) -> bool:
    try:
        return transactions.passes(batch)
    except KafkaError as error:
        raise _broken(topic, partition, batch.base_offset, error.message) from error


def _body(batch: BatchView, topic: str, partition: int) -> memoryview:
    try:
        return batch.body(MAX_BODY_BYTES)
    except KafkaError as error:
        raise _broken(topic, partition, batch.base_offset, error.message) from error


def _broken(topic: str, partition: int, offset: int, reason: str) -> DecodeError:
    return DecodeError(
        ErrorCode.CORRUPT_MESSAGE,
        f"topic {topic!r} partition {partition}: the batch at offset {offset} is bad: {reason}",
    )


def _flush(pool: _Pool, topic: str, partition: int, start_offset: int, end_offset: int, decoded: DecodeResult) -> None:
    index = pool.shifted_index()
    offsets = pool.per_row(pool.base_offsets) + index[:, 0]
    timestamps = pool.per_row(pool.base_timestamps) + index[:, 1]
    append_times = pool.per_row(pool.append_times)
    if not len(offsets):
        return  # a batch that compaction emptied
    if offsets[0] < start_offset or offsets[-1] >= end_offset:
        kept = (offsets >= start_offset) & (offsets < end_offset)
        index, offsets, timestamps, append_times = index[kept], offsets[kept], timestamps[kept], append_times[kept]
        if not len(offsets):
            return
    appended = append_times >= 0
    timestamps = np.where(appended, append_times, timestamps)
    batch = _to_arrow(pool.data, index, offsets, timestamps, appended, topic, partition)
    bad = (timestamps != NO_TIMESTAMP) & ((timestamps < 0) | (timestamps > MAX_TIMESTAMP_MS))
    if bad.any():
        decoded.dead_letters.append(_dead_letters(batch.filter(flags(bad)), timestamps[bad]))
        batch = batch.filter(flags(~bad))
        if not batch.num_rows:
            return
    decoded.batches.append(batch)
    decoded.rows += batch.num_rows


def _dead_letters(batch: pa.RecordBatch, timestamps: Int64s) -> pa.RecordBatch:
    reasons = [f"timestamp {timestamp} is not within the years 1970 to 9999" for timestamp in timestamps.tolist()]
    columns = {name: batch.column(name) for name in batch.schema.names} | {
        "timestamp_ms": numbers(timestamps),
        "reason": texts(reasons),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in DEAD_LETTER_SCHEMA.names], schema=DEAD_LETTER_SCHEMA)


def _to_arrow(
    data: bytearray,
    index: Int64s,
    offsets: Int64s,
    timestamps: Int64s,
    appended: npt.NDArray[np.bool_],
    topic: str,
    partition: int,
) -> pa.RecordBatch:
    count = len(offsets)
    known = (timestamps >= 0) & (timestamps <= MAX_TIMESTAMP_MS)
    microseconds = np.where(known, timestamps, 0) * 1000
    keys, values = _cut(data, index)
    columns = [
        repeated(topic, count),
        numbers(np.full(count, partition, np.int32)),
        numbers(offsets),
        numbers(microseconds, ~known).view(pa.timestamp("us", tz="UTC")),
        numbers(appended.astype(np.int32)),
        keys,
        values,
        _headers(data, index),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _cut(data: bytearray, index: Int64s) -> tuple[Any, Any]:
    """The key and the value column, taken from one array with the borders of all keys and values."""
    count = len(index)
    key_start, key_length, value_start, value_length = index[:, 2], index[:, 3], index[:, 4], index[:, 5]
    borders = np.empty((count, 4), np.int32)
    borders[:, 0] = key_start
    borders[:, 1] = key_start + np.maximum(key_length, 0)
    borders[:, 2] = value_start
    borders[:, 3] = value_start + np.maximum(value_length, 0)
    overlay = pa.Array.from_buffers(
        pa.binary(), 4 * count - 1, [None, pa.py_buffer(borders), pa.py_buffer(data)], null_count=0
    )
    first = np.arange(0, 4 * count, 4, dtype=np.int64)
    keys = overlay.take(numbers(first, key_length < 0))
    values = overlay.take(numbers(first + 2, value_length < 0))
    return keys, values


def _headers(data: bytearray, index: Int64s) -> Any:
    lengths = index[:, 7]
    counts = np.zeros(len(index) + 1, np.int32)
    names: list[str] = []
    values: list[bytes | None] = []
    for row in np.flatnonzero(lengths).tolist():
        headers = parse_headers(data, int(index[row, 6]), int(lengths[row]))
        counts[row + 1] = len(headers)
        for name, value in headers:
            names.append(name)
            values.append(value)
    pairs = pa.StructArray.from_arrays([texts(names), binaries(values)], fields=list(HEADERS_TYPE.value_type))
    return pa.ListArray.from_arrays(numbers(np.cumsum(counts, dtype=np.int32)), pairs, type=HEADERS_TYPE)
