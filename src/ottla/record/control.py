"""Control records: their types and keys, and the marker that ends a transaction (KIP-98).

A control batch has one record, or several in the metadata log. The values of control records other than transaction
markers are message schemas of `ottla.protocol`.

A marker is 78 bytes that differ in a few numbers: it is packed at once, and read at once if it has that shape. A marker
of another writer with a different shape is read like any batch.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from ottla.common.platform.disk import Buffer
from ottla.record.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    CONTROL_MASK,
    CRC_POSITION,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
    BatchView,
    Record,
)
from ottla.record.checksum import crc32c
from ottla.record.errors import InvalidRecord

_CRC = struct.Struct(">I")
_KEY = struct.Struct(">hh")
_KEY_VERSION = 0
_VALUE = struct.Struct(">hi")
_VALUE_VERSION = 0

_MARKER_RECORD = struct.Struct(">5shhshis")
_LENGTHS = b"\x20\0\0\0\x08"
"""16 bytes of the record, its attributes and deltas, and 4 bytes of the key."""
_VALUE_LENGTH = b"\x0c"
_NO_HEADERS = b"\0"
MARKER_SIZE = HEADER_SIZE + _MARKER_RECORD.size
"""Size of the control batch that ends a transaction."""


class ControlRecordType(IntEnum):
    """Kafka's numbers; a number that is not listed is UNKNOWN."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    """Content of a transaction marker, except for its producer, which is in the header of its batch."""

    committed: bool
    coordinator_epoch: int


class EndMarker(NamedTuple):
    """End of a producer's transaction in a partition, as decided by its coordinator (KIP-98, KIP-1228)."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """Of two coordinators of a transaction the older one is fenced."""
    committed: bool
    transaction_version: int
    """Transaction version, by which the partition checks the producer's epoch."""


def control_record_key(record_type: ControlRecordType) -> bytes:
    """Return the key of a control record of that type."""
    return _KEY.pack(_KEY_VERSION, record_type)


def control_record_type(record: Record) -> ControlRecordType:
    """Return the type in the key of a control batch's record; raises InvalidRecord if the key is invalid."""
    if record.key is None or len(record.key) < _KEY.size:
        raise InvalidRecord(f"the control record at offset {record.offset} has no type")
    version, number = _KEY.unpack_from(record.key)
    if version < 0:
        raise InvalidRecord(f"the control record at offset {record.offset} has key version {version}")
    try:
        return ControlRecordType(number)
    except ValueError:
        return ControlRecordType.UNKNOWN


def end_transaction_marker(
    *,
    commit: bool,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """Return the control batch that ends a transaction in a partition."""
    batch = bytearray(MARKER_SIZE)
    BATCH_HEADER.pack_into(
        batch,
        0,
        base_offset,
        MARKER_SIZE - LOG_OVERHEAD,
        leader_epoch,
        MAGIC_V2,
        0,
        TRANSACTIONAL_MASK | CONTROL_MASK,
        0,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        1,
    )
    _MARKER_RECORD.pack_into(
        batch,
        HEADER_SIZE,
        _LENGTHS,
        _KEY_VERSION,
        ControlRecordType.COMMIT if commit else ControlRecordType.ABORT,
        _VALUE_LENGTH,
        _VALUE_VERSION,
        coordinator_epoch,
        _NO_HEADERS,
    )
    with memoryview(batch) as view:
        _CRC.pack_into(batch, CRC_POSITION, crc32c(view[ATTRIBUTES_POSITION:]))
    return batch


def read_end_transaction_marker(batch: Buffer) -> EndTransactionMarker | None:
    """Return the content of the control batch in `batch`, whole and of a producer; None if its record was compacted.

    Newer versions of key and value are read like the known ones, as in Kafka. Raises InvalidRecord for a record that is
    not a marker, and KafkaError for unreadable records.
    """
    if len(batch) == MARKER_SIZE:
        lengths, key_version, number, value_length, version, epoch, headers = _MARKER_RECORD.unpack_from(
            batch, HEADER_SIZE
        )
        usual = (lengths, key_version, value_length, version, headers)
        if usual == _USUAL and number in _MARKERS:
            return EndTransactionMarker(number == ControlRecordType.COMMIT, epoch)
    record = next(iter(BatchView(batch).records()), None)
    if record is None:
        return None
    record_type = control_record_type(record)
    if record_type not in _MARKERS:
        raise InvalidRecord(f"the control record at offset {record.offset} ends no transaction")
    if record.value is None or len(record.value) < _VALUE.size:
        raise InvalidRecord(f"the marker at offset {record.offset} is cut short")
    version, epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        raise InvalidRecord(f"the marker at offset {record.offset} has version {version}")
    return EndTransactionMarker(record_type == ControlRecordType.COMMIT, epoch)


_MARKERS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)
_USUAL = (_LENGTHS, _KEY_VERSION, _VALUE_LENGTH, _VALUE_VERSION, _NO_HEADERS)
