"""Codec for records of `__share_group_state`: typed records to and from key and value bytes.

A key is the record type as a 16-bit integer (0 snapshot, 1 update) and its body in version 0. A value is its version
as a 16-bit integer, which is 0, and its body; a snapshot without value is the tombstone of its share partition.

An unreadable record is skipped, and the state before it stays: then records may be delivered again, but none is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.kafka.share_state import RecordState, SharePartitionKey, StateBatch
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.coordinator.share.state import ShareDeletion, ShareRecord, ShareSnapshot, ShareUpdate
from ottla.protocol.codec import MAX_RESPONSE_ELEMENTS, read_message, write_message
from ottla.protocol.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from ottla.protocol.messages.share_state_records import StateBatch as BatchField

SNAPSHOT, UPDATE = 0, 1
"""Record types."""
VERSION = 0
MAX_SNAPSHOT_EPOCH = 1 << 30
"""Upper bound that no real state reaches: the epoch after it has to fit into 32 bits."""

_INT16 = Struct(">h")
STORED_STATES = frozenset(RecordState) - {RecordState.ACQUIRED}
"""States of records that are stored."""


def encode_record(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Return key and value of the log record."""
    group_id, topic_id, partition = record.key.group_id, record.key.topic_id, record.key.partition
    value: Any
    if isinstance(record, ShareUpdate):
        key = _encode(UPDATE, ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition))
        value = ShareUpdateValue(
            snapshot_epoch=record.snapshot_epoch,
            leader_epoch=record.leader_epoch,
            start_offset=record.start_offset,
            delivery_complete_count=record.delivery_complete_count,
            state_batches=_fields(record.batches),
        )
        return key, _encode(VERSION, value)
    key = _encode(SNAPSHOT, ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition))
    if isinstance(record, ShareDeletion):
        return key, None
    value = ShareSnapshotValue(
        snapshot_epoch=record.snapshot_epoch,
        state_epoch=record.state_epoch,
        leader_epoch=record.leader_epoch,
        start_offset=record.start_offset,
        delivery_complete_count=record.delivery_complete_count,
        create_timestamp=record.created_ms,
        write_timestamp=record.written_ms,
        state_batches=_fields(record.batches),
    )
    return key, _encode(VERSION, value)


def decode_record(key: bytes, value: bytes | None) -> ShareRecord | None:
    """Return None for an unknown record type, and for an update without value. Raises ProtocolError."""
    if len(key) < _INT16.size:
        raise ProtocolError(f"the key of a share partition is too short ({len(key)} bytes)")
    kind = _INT16.unpack_from(key)[0]
    if kind == SNAPSHOT:
        place = _key(_decode(ShareSnapshotKey, key))
        return ShareDeletion(place) if value is None else _snapshot(place, _versioned(ShareSnapshotValue, value))
    if kind == UPDATE:
        place = _key(_decode(ShareUpdateKey, key))
        return None if value is None else _update(place, _versioned(ShareUpdateValue, value))
    return None


class ShareRecordSerde:
    """The share coordinator's `CoordinatorSerde`; stateless."""

    __slots__ = ()

    def encode(self, record: ShareRecord) -> CoordinatorRecord:
        return CoordinatorRecord(*encode_record(record))

    def decode(self, key: bytes, value: bytes | None) -> ShareRecord | None:
        """Return None for a record that changes nothing. Raises KafkaError CORRUPT_MESSAGE."""
        try:
            return decode_record(key, value)
        except ProtocolError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

    def without_value(self, key: bytes) -> ShareRecord | None:
        """Return None: the previous state stays."""
        return None


def _encode(head: int, message: object) -> bytes:
    out = bytearray(_INT16.pack(head))
    write_message(message, VERSION, out)
    return bytes(out)


def _fields(batches: Sequence[StateBatch]) -> list[BatchField]:
    return [
        BatchField(
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            delivery_state=batch.state,
            delivery_count=batch.delivery_count,
        )
        for batch in batches
    ]


def _decode(schema: type, data: bytes) -> Any:
    message: Any
    message, position = read_message(schema, VERSION, data, _INT16.size, len(data), MAX_RESPONSE_ELEMENTS)
    if position != len(data):
        raise ProtocolError(f"a record of a share partition has {len(data) - position} trailing bytes")
    return message


def _versioned(schema: type, value: bytes) -> Any:
    version = _INT16.unpack_from(value)[0] if len(value) >= _INT16.size else None
    if version != VERSION:
        raise ProtocolError(f"the value of a share partition has the unsupported version {version}, not {VERSION}")
    return _decode(schema, value)


def _key(message: Any) -> SharePartitionKey:
    return SharePartitionKey(message.group_id, message.topic_id, message.partition)


def _snapshot(key: SharePartitionKey, value: ShareSnapshotValue) -> ShareSnapshot:
    _check_epoch(value.snapshot_epoch)
    return ShareSnapshot(
        key,
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        value.create_timestamp,
        value.write_timestamp,
        _batches(value.state_batches),
    )


def _update(key: SharePartitionKey, value: ShareUpdateValue) -> ShareUpdate:
    _check_epoch(value.snapshot_epoch)
    return ShareUpdate(
        key,
        value.snapshot_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        _batches(value.state_batches),
    )


def _check_epoch(snapshot_epoch: int) -> None:
    if not 0 <= snapshot_epoch <= MAX_SNAPSHOT_EPOCH:
        raise ProtocolError(f"a record of a share partition has the invalid snapshot epoch {snapshot_epoch}")


def _batches(fields: Sequence[BatchField]) -> tuple[StateBatch, ...]:
    batches = tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in fields
    )
    if not all(map(is_valid, batches)):
        raise ProtocolError("a record of a share partition has an invalid state batch")
    return batches


def is_valid(batch: StateBatch) -> bool:
    """Whether the batch may be stored."""
    return (
        0 <= batch.first_offset <= batch.last_offset < (1 << 63) - 1
        and batch.delivery_count >= 0
        and batch.state in STORED_STATES
    )
