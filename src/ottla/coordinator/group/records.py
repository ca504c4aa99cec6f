"""Codec for records of `__consumer_offsets`: typed messages to and from key and value bytes.

A key is the record type as a 16-bit integer and the key's body, always in version 0. A value is its version as a 16-bit
integer and its body; a null value is a tombstone. Values are written in the versions that Apache Kafka 4.4 writes, and
read in every version that is declared. Records of type 0, which brokers before Kafka 0.9 wrote, are read as type 1.
Undeclared types (streams groups) decode to None. Replay skips them, so that data of a newer broker does not
stop this one; the log retains them.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any, NamedTuple

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.platform.disk import Buffer
from ottla.coordinator.group.offsets.committed_offset import is_usual, pack
from ottla.coordinator.runtime.records import CoordinatorRecord
from ottla.protocol.codec import MAX_RESPONSE_ELEMENTS, read_message, write_message
from ottla.protocol.messages.coordinator_records import (
    COORDINATOR_RECORDS,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMetadataValue,
    ShareGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.schema import schema_of

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_KINDS: Mapping[type, int] = {key: kind for kind, (key, _) in COORDINATOR_RECORDS.items()}
_GROUP_METADATA_VERSION = 3
_PARTITION_SIZE = 4
"""Size of the partition number at the end of the key of an offset commit."""

MAX_EPOCH = 1 << 30
"""Upper bound that no real group reaches. A group near the 32-bit limit could not increment its epoch or generation."""
_EPOCHS: Mapping[type, tuple[int, tuple[str, ...]]] = {
    GroupMetadataValue: (-1, ("generation",)),
    ConsumerGroupMetadataValue: (0, ("epoch",)),
    ConsumerGroupTargetAssignmentMetadataValue: (-1, ("assignment_epoch",)),
    ConsumerGroupCurrentMemberAssignmentValue: (-2, ("member_epoch", "previous_member_epoch")),
    ShareGroupMetadataValue: (0, ("epoch",)),
    ShareGroupTargetAssignmentMetadataValue: (-1, ("assignment_epoch",)),
    ShareGroupCurrentMemberAssignmentValue: (-2, ("member_epoch", "previous_member_epoch")),
}
"""Epoch fields of values, with the lowest value that is written."""


class OffsetPlace(NamedTuple):
    """Key of an offset commit. There may be millions of these, so they are plain tuples, not messages."""

    group: str
    topic: str
    partition: int


class GroupRecord(NamedTuple):
    """One record: a key message of `protocol.messages.coordinator_records` and its value message; None is a tombstone.

    An offset commit has an `OffsetPlace` as key and the bytes that `committed_offset` packs as value.
    """

    key: Any
    value: Any


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Return key and value of the log record."""
    if isinstance(record.key, OffsetPlace):
        return _key_before_partition(record.key) + _INT32.pack(record.key.partition), record.value
    return _encode_any(record)


def _key_before_partition(place: OffsetPlace) -> bytes:
    key = bytearray(_INT16.pack(_KINDS[OffsetCommitKey]))
    write_message(OffsetCommitKey(group=place.group, topic=place.topic, partition=place.partition), 0, key)
    return bytes(key[:-_PARTITION_SIZE])


def _encode_any(record: GroupRecord) -> tuple[bytes, bytes | None]:
    key = bytearray(_INT16.pack(_KINDS[type(record.key)]))
    write_message(record.key, 0, key)
    if record.value is None:
        return bytes(key), None
    version = _write_version(record.value)
    value = bytearray(_INT16.pack(version))
    write_message(record.value, version, value)
    return bytes(key), bytes(value)


def _write_version(value: Any) -> int:
    return _GROUP_METADATA_VERSION if isinstance(value, GroupMetadataValue) else 0


def decode_record(key: Buffer, value: Buffer | None) -> GroupRecord | None:
    """Inverse of `encode_record`; None for an unknown record type. Raises ProtocolError for corrupt bytes."""
    record = _decode_any(key, value)
    if record is None or not isinstance(record.key, OffsetCommitKey):
        return record
    place = OffsetPlace(record.key.group, record.key.topic, record.key.partition)
    found = record.value
    if found is None:
        return GroupRecord(place, None)
    packed = pack(
        found.offset,
        found.leader_epoch,
        found.commit_timestamp,
        found.expire_timestamp,
        found.topic_id,
        found.metadata,
    )
    return GroupRecord(place, packed)


def _decode_any(key: Buffer, value: Buffer | None) -> GroupRecord | None:
    if len(key) < _INT16.size:
        raise ProtocolError(f"the key of a coordinator record is too short ({len(key)} bytes)")
    kind = _INT16.unpack_from(key)[0]
    classes = COORDINATOR_RECORDS.get(kind)
    if classes is None:
        return None
    key_message = _body(classes[0], 0, key)
    if value is None:
        return GroupRecord(_current_key(key_message), None)
    if len(value) < _INT16.size:
        raise ProtocolError(f"the value of a coordinator record is too short ({len(value)} bytes)")
    version = _INT16.unpack_from(value)[0]
    if version < 0:
        raise ProtocolError(f"{classes[1].__name__} has the invalid version {version}")
    value_message = _body(classes[1], version, value)
    _check_epochs(value_message)
    if isinstance(value_message, LegacyOffsetCommitValue):
        value_message = OffsetCommitValue(
            offset=value_message.offset,
            metadata=value_message.metadata,
            commit_timestamp=value_message.commit_timestamp,
        )
    return GroupRecord(_current_key(key_message), value_message)


def _check_epochs(value: Any) -> None:
    lowest, names = _EPOCHS.get(type(value), (0, ()))
    for name in names:
        if not lowest <= getattr(value, name) <= MAX_EPOCH:
            raise ProtocolError(f"{type(value).__name__} has the invalid {name} {getattr(value, name)}")


def _current_key(key: Any) -> Any:
    if isinstance(key, LegacyOffsetCommitKey):
        return OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
    return key


def _body(cls: type, version: int, data: Buffer) -> Any:
    """Decode the message after the leading 16 bits; a version above the declared ones raises ProtocolError."""
    end = len(data)
    message: Any
    try:
        message, position = read_message(cls, version, data, _INT16.size, end, MAX_RESPONSE_ELEMENTS)
    except KafkaError as error:
        known = schema_of(cls).versions
        raise ProtocolError(
            f"{cls.__name__} has the unsupported version {version}, not {known.low} to {known.high}"
        ) from error
    if position != end:
        raise ProtocolError(f"{cls.__name__} of version {version} has {end - position} trailing bytes")
    return message


class GroupRecordSerde:
    """The group coordinator's `CoordinatorSerde`.

    Offset commits arrive in runs for one group and topic, in requests and in the log. The last key is cached up to its
    partition, so an offset needs neither a message nor a new string.
    """

    __slots__ = ("_group", "_prefix", "_topic")

    def __init__(self) -> None:
        self._prefix = b""
        self._group = self._topic = ""

    def encode(self, record: GroupRecord) -> CoordinatorRecord:
        key = record.key
        if type(key) is not OffsetPlace:
            return CoordinatorRecord(*encode_record(record))
        if key.topic is not self._topic or key.group is not self._group or not self._prefix:
            self._remember(_key_before_partition(key), key)
        return CoordinatorRecord(self._prefix + _INT32.pack(key.partition), record.value)

    def decode(self, key: Buffer, value: Buffer | None) -> GroupRecord | None:
        """Return None for an unknown record type. Raises KafkaError CORRUPT_MESSAGE."""
        if isinstance(key, bytes) and isinstance(value, bytes):
            same = self._prefix and key.startswith(self._prefix) and len(key) == len(self._prefix) + _PARTITION_SIZE
            if same and is_usual(value):
                partition = _INT32.unpack_from(key, len(self._prefix))[0]
                return GroupRecord(OffsetPlace(self._group, self._topic, partition), value)
        try:
            record = decode_record(key, value)
        except ProtocolError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        if record is not None and type(record.key) is OffsetPlace:
            self._remember(_key_before_partition(record.key), record.key)
        return record

    def without_value(self, key: Buffer) -> GroupRecord | None:
        """Return None: a group that resumes at an older offset reads records twice; without any offset it may skip
        some."""
        return None

    def _remember(self, prefix: bytes, place: OffsetPlace) -> None:
        self._prefix, self._group, self._topic = prefix, place.group, place.topic
