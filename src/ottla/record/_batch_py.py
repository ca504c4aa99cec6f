"""Walk over the records of an uncompressed batch body in Python: twin and reference of `_batch.pyx`.

All functions take `(buffer, start, end, count)`: the bytes of `count` records and nothing else. All of them validate
everything they pass, raise `InvalidRecord` with the same text as the compiled twin, and allocate only in proportion
to the bytes present: a record takes at least 7 bytes, a header 2.

Offset deltas must rise from record to record; they may have gaps (compaction), except for `walk_records` and
`refused_records`, which check a producer's batches: 0, 1, 2, ...
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from struct import Struct

from ottla.common.errors import InvariantError
from ottla.common.platform.disk import Buffer
from ottla.record.errors import (
    BAD_HEADER,
    BAD_HEADER_COUNT,
    BAD_LENGTH,
    BAD_OFFSET_DELTA,
    BAD_RECORD_COUNT,
    BAD_VARINT,
    SURPLUS_IN_BATCH,
    SURPLUS_IN_RECORD,
    invalid_record,
    timestamp_out_of_range,
)
from ottla.record.template import Template

INDEX_WIDTH = 8
"""Number of int64 values of `index_records` for each record."""

_MIN_RECORD_SIZE = 7
_MIN_HEADER_SIZE = 2
_VARINT_SIZE = 5
_VARLONG_SIZE = 10
_UINT32_MAX = 0xFFFFFFFF
_UINT64_MAX = 0xFFFFFFFFFFFFFFFF
_INT64_RANGE = 1 << 64
_BATCH_HEADER = Struct(">qiibIhiqqqhii")
_LOG_OVERHEAD = 12
_MAGIC_V2 = 2
_NO_PRODUCER_ID = -1
_UNUSUAL_ATTRIBUTES = 0x7F
"""Codec, timestamp type, transactional, control, delete horizon: bits of `ottla.record.batch`, which imports this."""
_MAX_RECORDS = 128 * 1024 * 1024 // _MIN_RECORD_SIZE
"""As in `ottla.record.validate`."""
_NO_TIMESTAMP = -1

Header = tuple[str, bytes | None]
ParsedRecord = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]
Fields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""Fields of a batch header, `ottla.record.batch.BatchHeader`."""
_Row = tuple[int, int, int, int, int, int, int, int]


class _Defect(Exception):
    """A defect of `ottla.record.errors`, raised to the loop that knows the record's index."""

    def __init__(self, defect: int) -> None:
        super().__init__(defect)
        self.defect = defect


def _read_zigzag(buffer: Buffer, position: int, end: int, size: int, limit: int) -> tuple[int, int]:
    if end - position > size:
        end = position + size
    value = 0
    shift = 0
    while position < end:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > limit:
                break
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise _Defect(BAD_VARINT)


def _read_varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    if position < end:
        byte = buffer[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
    return _read_zigzag(buffer, position, end, _VARINT_SIZE, _UINT32_MAX)


def _skip_headers(buffer: Buffer, position: int, end: int, count: int) -> int:
    for _ in range(count):
        length, position = _read_varint(buffer, position, end)
        if length < 0 or length > end - position:
            raise _Defect(BAD_HEADER)
        position += length
        length, position = _read_varint(buffer, position, end)
        if length < -1 or length > end - position:
            raise _Defect(BAD_HEADER)
        if length > 0:
            position += length
    return position


def _read_record(buffer: Buffer, position: int, end: int) -> tuple[_Row, int]:
    """Parse one record: returns its row of the index, and the position after it."""
    length, position = _read_varint(buffer, position, end)
    if length < 1 or length > end - position:
        raise _Defect(BAD_LENGTH)
    end = position + length
    position += 1  # the record's attributes, unused in format v2
    timestamp_delta, position = _read_zigzag(buffer, position, end, _VARLONG_SIZE, _UINT64_MAX)
    offset_delta, position = _read_varint(buffer, position, end)
    key_length, position = _read_varint(buffer, position, end)
    if key_length < -1 or key_length > end - position:
        raise _Defect(BAD_LENGTH)
    key_start = position
    if key_length > 0:
        position += key_length
    value_length, position = _read_varint(buffer, position, end)
    if value_length < -1 or value_length > end - position:
        raise _Defect(BAD_LENGTH)
    value_start = position
    if value_length > 0:
        position += value_length
    header_count, position = _read_varint(buffer, position, end)
    if header_count < 0 or header_count > (end - position) // _MIN_HEADER_SIZE:
        raise _Defect(BAD_HEADER_COUNT)
    headers_start = position
    if header_count:
        position = _skip_headers(buffer, position, end, header_count)
    if position != end:
        raise _Defect(SURPLUS_IN_RECORD)
    row = (
        offset_delta,
        timestamp_delta,
        key_start,
        key_length,
        value_start,
        value_length,
        headers_start,
        end - headers_start,
    )
    return row, end


def _check_range(buffer: Buffer, start: int, end: int) -> None:
    if not 0 <= start <= end <= len(buffer):
        raise InvariantError("the range is outside of the buffer")


def _check_entry(buffer: Buffer, start: int, end: int, count: int) -> None:
    _check_range(buffer, start, end)
    if count < 0 or count > (end - start) // _MIN_RECORD_SIZE:
        raise invalid_record(BAD_RECORD_COUNT, 0)


def _rows(buffer: Buffer, start: int, end: int, count: int) -> Iterator[_Row]:
    _check_entry(buffer, start, end, count)
    position = start
    last_offset_delta = -1
    for index in range(count):
        try:
            row, position = _read_record(buffer, position, end)
        except _Defect as found:
            raise invalid_record(found.defect, index) from None
        if row[0] <= last_offset_delta:
            raise invalid_record(BAD_OFFSET_DELTA, index)
        last_offset_delta = row[0]
        yield row
    if position != end:
        raise invalid_record(SURPLUS_IN_BATCH, count)


def usual_header(buffer: Buffer, start: int, end: int) -> Fields | None:
    """Return the header of a client's usual batch at `start`; None for any other.

    Usual is an uncompressed batch without attributes and with valid fields. Its CRC is not compared, and
    `validate.check_batch` decides about all others. The batch may end before `end`.
    """
    _check_range(buffer, start, end)
    if end - start < _BATCH_HEADER.size:
        return None
    header: Fields = _BATCH_HEADER.unpack_from(buffer, start)
    (
        _, length, _, magic, _, attributes, delta,
        base_timestamp, max_timestamp, producer_id, epoch, sequence, count,
    ) = header  # fmt: skip
    if (
        magic != _MAGIC_V2
        or length > end - start - _LOG_OVERHEAD
        or attributes & _UNUSUAL_ATTRIBUTES
        or not 0 < count <= _MAX_RECORDS
        or count != delta + 1
        or count * _MIN_RECORD_SIZE > length - (_BATCH_HEADER.size - _LOG_OVERHEAD)
        or max_timestamp < base_timestamp
        or max_timestamp < _NO_TIMESTAMP
        or (producer_id != _NO_PRODUCER_ID and (producer_id < 0 or epoch < 0 or sequence < 0))
    ):
        return None
    return header


def walk_records(buffer: Buffer, start: int, end: int, count: int) -> None:
    """Check every record of a producer's batch; raises InvalidRecord."""
    for expected, row in enumerate(_rows(buffer, start, end, count)):
        if row[0] != expected:
            raise invalid_record(BAD_OFFSET_DELTA, expected)


def index_records(buffer: Buffer, start: int, end: int, count: int) -> array[int]:
    """Index the records, as `INDEX_WIDTH` int64 values for each, for vectorised decoding.

    Each row: offset_delta, timestamp_delta, key_start, key_length, value_start, value_length, headers_start,
    headers_length. Positions count from the start of `buffer`; a length of -1 is null; headers_start is after the
    header count and headers_length in bytes (0: none), as `parse_headers` takes them.
    """
    index = array("q")
    for row in _rows(buffer, start, end, count):
        index.extend(row)
    return index


def render_rows(
    buffer: Buffer,
    rows: array[int],
    template: Template,
    null: bytes,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    span: tuple[int, int, int],
) -> tuple[bytearray, int]:
    """Return the text of records by `template`, one after another, and their number.

    `rows` are those of `index_records` with the same `buffer`. `null` is the text of a null key, value or timestamp
    (-1). `span`: the first offset delta, the end offset delta (exclusive), the largest number of records. All records
    have `append_time` unless it is None. Raises InvalidRecord for a timestamp beyond 64 bits, InvariantError for rows
    of another buffer.
    """
    first, end, limit = span
    parts: list[bytes] = []
    number = 0
    for place in range(0, len(rows), INDEX_WIDTH):
        offset_delta, timestamp_delta, key_start, key_length, value_start, value_length = rows[place : place + 6]
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        if not -_INT64_RANGE // 2 <= timestamp < _INT64_RANGE // 2:
            raise timestamp_out_of_range(offset_delta)
        for start, length in ((key_start, key_length), (value_start, value_length)):
            if not 0 <= start <= len(buffer) or length > len(buffer) - start:
                raise InvariantError("the rows are not those of the buffer")
        if number == limit or not first <= offset_delta < end:
            continue
        number += 1
        key = bytes(buffer[key_start : key_start + key_length]) if key_length >= 0 else None
        value = bytes(buffer[value_start : value_start + value_length]) if value_length >= 0 else None
        fields = (
            b"%d" % (base_offset + offset_delta),
            null if timestamp == _NO_TIMESTAMP else b"%d" % timestamp,
            null if key is None else key,
            null if value is None else value,
            b"%d" % max(key_length, 0),
            b"%d" % max(value_length, 0),
        )
        parts += [fields[piece] if isinstance(piece, int) else piece for piece in template]
    return bytearray().join(parts), number


def refused_records(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    needs_keys: bool,
    base_timestamp: int,
    earliest: int,
    latest: int,
    limit: int,
) -> tuple[int, list[tuple[int, int, bool]]]:
    """Check every record as `walk_records` does, and against the topic's rules; returns the number of violations.

    A violation is a null key with `needs_keys`, or a timestamp (ms; -1 is none) outside [earliest, latest]. The first
    `limit` of them are returned as (number of the record, timestamp, whether the key is missing).
    """
    found: list[tuple[int, int, bool]] = []
    total = 0
    for number, row in enumerate(_rows(buffer, start, end, count)):
        if row[0] != number:
            raise invalid_record(BAD_OFFSET_DELTA, number)
        keyless = needs_keys and row[3] < 0
        # overflow as int64
        timestamp = (base_timestamp + row[1] + _INT64_RANGE // 2) % _INT64_RANGE - _INT64_RANGE // 2
        if keyless or (timestamp != _NO_TIMESTAMP and not earliest <= timestamp <= latest):
            total += 1
            if len(found) < limit:
                found.append((number, timestamp, keyless))
    return total, found


def oversized_record(buffer: Buffer, start: int, end: int, count: int, max_bytes: int) -> int:
    """Return the size of the first record larger than `max_bytes`, by its length field; 0 without one.

    Raises InvalidRecord for a malformed record before it; `refused_records` checks whether the records fill the range.
    """
    _check_entry(buffer, start, end, count)
    position = start
    for index in range(count):
        try:
            size, _ = _read_varint(buffer, position, end)
            if size > max_bytes:
                return size
            _, position = _read_record(buffer, position, end)
        except _Defect as found:
            raise invalid_record(found.defect, index) from None
    return 0


def max_timestamp(buffer: Buffer, start: int, end: int, count: int) -> tuple[int, int]:
    """Return (timestamp_delta, offset_delta) of the first record with the largest timestamp; (-1, -1) if empty."""
    found = (-1, -1)
    for row in _rows(buffer, start, end, count):
        if found[1] < 0 or row[1] > found[0]:
            found = (row[1], row[0])
    return found


def find_timestamp(
    buffer: Buffer, start: int, end: int, count: int, timestamp_delta: int, first_offset_delta: int
) -> tuple[int, int] | None:
    """Return (timestamp_delta, offset_delta) of the first record at or after both deltas, or None."""
    found = None
    for row in _rows(buffer, start, end, count):
        if found is None and row[1] >= timestamp_delta and row[0] >= first_offset_delta:
            found = (row[1], row[0])
    return found


def parse_headers(buffer: Buffer, start: int, length: int) -> tuple[Header, ...]:
    """Return the headers in a range of `index_records`; raises InvalidRecord if they do not fill it exactly.

    A key that is not UTF-8 gets replacement characters, as in Java.
    """
    end = start + length
    _check_range(buffer, start, end)
    headers: list[Header] = []
    position = start
    try:
        while position < end:
            key_length, position = _read_varint(buffer, position, end)
            if key_length < 0 or key_length > end - position:
                raise _Defect(BAD_HEADER)
            key = str(buffer[position : position + key_length], "utf-8", "replace")
            position += key_length
            value_length, position = _read_varint(buffer, position, end)
            if value_length < -1 or value_length > end - position:
                raise _Defect(BAD_HEADER)
            if value_length < 0:
                headers.append((key, None))
            else:
                headers.append((key, bytes(buffer[position : position + value_length])))
                position += value_length
    except _Defect as found:
        raise invalid_record(found.defect, 0) from None
    return tuple(headers)


def parse_records(buffer: Buffer, start: int, end: int, count: int) -> list[ParsedRecord]:
    """Return (offset_delta, timestamp_delta, key, value, headers) of each record."""
    records: list[ParsedRecord] = []
    for offset_delta, timestamp_delta, key_start, key_length, value_start, value_length, headers_start, length in _rows(
        buffer, start, end, count
    ):
        key = bytes(buffer[key_start : key_start + key_length]) if key_length >= 0 else None
        value = bytes(buffer[value_start : value_start + value_length]) if value_length >= 0 else None
        headers = parse_headers(buffer, headers_start, length) if length else ()
        records.append((offset_delta, timestamp_delta, key, value, headers))
    return records
