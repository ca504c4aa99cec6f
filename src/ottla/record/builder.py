"""Builder of record batches in format v2: for tests, tools, control records and the broker's own topics.

Not used on the produce path, which stores the producer's bytes. Offsets within a batch are contiguous here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.record.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CRC_POSITION,
    CREATE_TIME,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from ottla.record.checksum import crc32c
from ottla.record.compression import CODEC_IDS, compress
from ottla.record.varint import write_varint

_CRC = struct.Struct(">I")

_NO_PRODUCER = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)


class RecordData(NamedTuple):
    """Fields of a record; `timestamp_ms` since the epoch or NO_TIMESTAMP."""

    timestamp_ms: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


_ONE_BYTE = 1 << 6
_TWO_BYTES = 1 << 13
"""Limits below which numbers from 0 on have a varint of 1, 2, ... bytes."""


def _write_length(out: bytearray, number: int) -> None:
    """`write_varint` for a non-negative, mostly small number."""
    if number < _ONE_BYTE:
        out.append(number << 1)
    elif number < _TWO_BYTES:
        out.append((number << 1 & 0x7F) | 0x80)
        out.append(number >> 6)
    else:
        write_varint(out, number)


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # the varint of -1
        return
    size = len(data)
    if size < _ONE_BYTE:
        out.append(size << 1)
    else:
        _write_length(out, size)
    out += data


def _write_record(out: bytearray, record: RecordData, offset_delta: int, base_timestamp: int) -> None:
    timestamp_ms, key, value, headers = record
    body = bytearray(1)  # attributes, unused
    delta = timestamp_ms - base_timestamp
    if delta:
        write_varint(body, delta)
    else:
        body.append(0)
    _write_length(body, offset_delta)
    _write_bytes(body, key)
    _write_bytes(body, value)
    if not headers:
        body.append(0)
    else:
        _write_headers(body, headers)
    _write_length(out, len(body))
    out += body


def _write_headers(body: bytearray, headers: Sequence[tuple[str, bytes | None]]) -> None:
    _write_length(body, len(headers))
    for name, header_value in headers:
        _write_bytes(body, name.encode("utf-8"))
        _write_bytes(body, header_value)


def build_batch(
    records: Iterable[RecordData],
    *,
    base_offset: int = 0,
    compression: str = "none",
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    timestamp_type: int = CREATE_TIME,
) -> bytearray:
    """Build one batch of at least one record, ready to be sent or appended.

    Raises KafkaError UNSUPPORTED_COMPRESSION_TYPE for an unknown codec name.
    """
    codec_id = CODEC_IDS.get(compression)
    if codec_id is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{compression!r} is not a codec")
    attributes = codec_id
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_MASK
    if is_transactional:
        attributes |= TRANSACTIONAL_MASK
    if is_control:
        attributes |= CONTROL_MASK
    producer = producer_id, producer_epoch, base_sequence
    return _build(enumerate(records), base_offset, attributes, leader_epoch, producer)


def build_batch_with_gaps(
    records: Iterable[tuple[int, RecordData]], base_offset: int, timestamp_type: int = CREATE_TIME
) -> bytearray:
    """Build one batch of (offset delta, record) in rising order with gaps, uncompressed and without a producer."""
    attributes = TIMESTAMP_TYPE_MASK if timestamp_type == LOG_APPEND_TIME else 0
    return _build(records, base_offset, attributes, NO_PARTITION_LEADER_EPOCH, _NO_PRODUCER)


def _build(
    records: Iterable[tuple[int, RecordData]],
    base_offset: int,
    attributes: int,
    leader_epoch: int,
    producer: tuple[int, int, int],
) -> bytearray:
    rest = iter(records)
    first = next(rest, None)
    if first is None:
        raise InvariantError("a batch without records was to be built")
    base_timestamp = max_timestamp = first[1].timestamp_ms
    codec_id = attributes & COMPRESSION_MASK
    count = last_offset_delta = 0
    batch = bytearray(HEADER_SIZE)
    body = bytearray() if codec_id else batch
    for last_offset_delta, record in chain((first,), rest):
        _write_record(body, record, last_offset_delta, base_timestamp)
        count += 1
        if record.timestamp_ms > max_timestamp:
            max_timestamp = record.timestamp_ms
    if codec_id:
        batch += compress(codec_id, body)
    BATCH_HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD,
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        *producer,
        count,
    )
    with memoryview(batch) as view:
        crc = crc32c(view[ATTRIBUTES_POSITION:])
    _CRC.pack_into(batch, CRC_POSITION, crc)
    return batch
