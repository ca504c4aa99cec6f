"""Records of `__consumer_offsets`: typed on one side, key and value bytes on the other.

A key is the kind of record as a 16-bit integer and the key's body, always in its version 0. A value is its version as a
16-bit integer and its body; a null value is a tombstone. Values are written in the versions that Apache Kafka 4.3
writes, and read in every version that is declared. Records of kind 0, which brokers before Kafka 0.9 wrote, read as
kind 1. Kinds that are not declared (share and streams groups) read as None: whoever replays skips them, so that data of
a newer broker does not stop this one, and the log keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from ottla.common.disk import Buffer
from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.ids import ZERO_UUID
from ottla.coordinator.runtime.records import CoordinatorRecord
from ottla.protocol.codec import MAX_RESPONSE_ELEMENTS, read_message, write_message
from ottla.protocol.messages.coordinator_records import (
    COORDINATOR_RECORDS,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.schema import schema_of

NO_TIMESTAMP = -1

_INT16 = Struct(">h")
_KINDS: Mapping[type, int] = {key: kind for kind, (key, _) in COORDINATOR_RECORDS.items()}
_VALUE_OF_KEY: Mapping[type, type] = dict(COORDINATOR_RECORDS.values())
_GROUP_METADATA_VERSION = 3
_OFFSET_COMMIT_VERSION = 4
_OFFSET_COMMIT_VERSION_WITH_EXPIRY = 1

_OFFSET_COMMIT_KIND = 1
_KIND_AND_LENGTH = Struct(">hh")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_VALUE_HEAD = Struct(">hqiB")
"""Version, offset, leader epoch, and the length of the metadata plus one where that is one byte of a varint."""
_LONG_VARINT = 0x80
_MAX_INT16 = 0x7FFF
_NO_TAGS = b"\0"
_TOPIC_ID_TAG = b"\1\0\x10"
_TOPIC_ID_TAG_SIZE = len(_TOPIC_ID_TAG) + 16


class GroupRecord(NamedTuple):
    """One record: a key message of `protocol.messages.coordinator_records` and its value message, None: tombstone."""

    key: Any
    value: Any


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value of the log record."""
    if isinstance(record.value, OffsetCommitValue) and record.value.expire_timestamp == NO_TIMESTAMP:
        return _encode_usual_offset_commit(record.key, record.value) or _encode_any(record)
    return _encode_any(record)


def _encode_usual_offset_commit(key: OffsetCommitKey, value: OffsetCommitValue) -> tuple[bytes, bytes] | None:
    """The same for an offset commit without its own expiry; None where a length is unusual.

    Commits are the bulk of what a coordinator writes; see `_decode_usual_offset_commit`.
    """
    group, topic, metadata = key.group.encode(), key.topic.encode(), value.metadata.encode()
    if len(group) > _MAX_INT16 or len(topic) > _MAX_INT16 or len(metadata) + 1 >= _LONG_VARINT:
        return None
    topic_id = value.topic_id
    return (
        b"".join(
            (
                _KIND_AND_LENGTH.pack(_OFFSET_COMMIT_KIND, len(group)),
                group,
                _INT16.pack(len(topic)),
                topic,
                _INT32.pack(key.partition),
            )
        ),
        b"".join(
            (
                _VALUE_HEAD.pack(_OFFSET_COMMIT_VERSION, value.offset, value.leader_epoch, len(metadata) + 1),
                metadata,
                _INT64.pack(value.commit_timestamp),
                _NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id,
            )
        ),
    )


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
    if isinstance(value, OffsetCommitValue):
        with_expiry = value.expire_timestamp != NO_TIMESTAMP
        return _OFFSET_COMMIT_VERSION_WITH_EXPIRY if with_expiry else _OFFSET_COMMIT_VERSION
    return _GROUP_METADATA_VERSION if isinstance(value, GroupMetadataValue) else 0


def decode_record(key: Buffer, value: Buffer | None) -> GroupRecord | None:
    """Inverse of `encode_record`; None for a kind that is not known. Raises ProtocolError for damaged bytes."""
    if isinstance(key, bytes) and isinstance(value, bytes):
        usual = _decode_usual_offset_commit(key, value)
        if usual is not None:
            return usual
    return _decode_any(key, value)


def _decode_usual_offset_commit(key: bytes, value: bytes) -> GroupRecord | None:
    """An offset commit as this broker writes it, None for everything else, damage included.

    A load reads millions of them; this takes half the time of the compiled readers, to which a test compares it.
    """
    try:
        kind, group_length = _KIND_AND_LENGTH.unpack_from(key)
        topic_start = _KIND_AND_LENGTH.size + group_length + _INT16.size
        topic_end = len(key) - _INT32.size
        if kind != _OFFSET_COMMIT_KIND or group_length < 0 or topic_end < topic_start:
            return None
        if _INT16.unpack_from(key, topic_start - _INT16.size)[0] != topic_end - topic_start:
            return None
        version, offset, leader_epoch, metadata_length = _VALUE_HEAD.unpack_from(value)
        metadata_end = _VALUE_HEAD.size + metadata_length - 1
        if version != _OFFSET_COMMIT_VERSION or not 1 <= metadata_length < _LONG_VARINT:
            return None
        tail = value[metadata_end + _INT64.size :]
        if tail != _NO_TAGS and (len(tail) != _TOPIC_ID_TAG_SIZE or not tail.startswith(_TOPIC_ID_TAG)):
            return None
        return GroupRecord(
            OffsetCommitKey(
                group=key[_KIND_AND_LENGTH.size : topic_start - _INT16.size].decode(),
                topic=key[topic_start:topic_end].decode(),
                partition=_INT32.unpack_from(key, topic_end)[0],
            ),
            OffsetCommitValue(
                offset=offset,
                leader_epoch=leader_epoch,
                metadata=value[_VALUE_HEAD.size : metadata_end].decode(),
                commit_timestamp=_INT64.unpack_from(value, metadata_end)[0],
                topic_id=ZERO_UUID if tail == _NO_TAGS else tail[len(_TOPIC_ID_TAG) :],
            ),
        )
    except (StructError, UnicodeDecodeError):
        return None


def _decode_any(key: Buffer, value: Buffer | None) -> GroupRecord | None:
    if len(key) < _INT16.size:
        raise ProtocolError(f"a coordinator record has a key of {len(key)} bytes")
    kind = _INT16.unpack_from(key)[0]
    classes = COORDINATOR_RECORDS.get(kind)
    if classes is None:
        return None
    key_message = _body(classes[0], 0, key)
    if value is None:
        return GroupRecord(_current_key(key_message), None)
    if len(value) < _INT16.size:
        raise ProtocolError(f"a coordinator record has a value of {len(value)} bytes")
    version = _INT16.unpack_from(value)[0]
    if version < 0:
        raise ProtocolError(f"{classes[1].__name__} of version {version}")
    value_message = _body(classes[1], version, value)
    if isinstance(value_message, LegacyOffsetCommitValue):
        value_message = OffsetCommitValue(
            offset=value_message.offset,
            metadata=value_message.metadata,
            commit_timestamp=value_message.commit_timestamp,
        )
    return GroupRecord(_current_key(key_message), value_message)


def _current_key(key: Any) -> Any:
    if isinstance(key, LegacyOffsetCommitKey):
        return OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
    return key


def _body(cls: type, version: int, data: Buffer) -> Any:
    """The message behind the leading 16 bits; a version above those declared is refused."""
    end = len(data)
    message: Any
    try:
        message, position = read_message(cls, version, data, _INT16.size, end, MAX_RESPONSE_ELEMENTS)
    except KafkaError as error:
        known = schema_of(cls).versions
        raise ProtocolError(
            f"{cls.__name__} of version {version}: versions {known.low} to {known.high} are known"
        ) from error
    if position != end:
        raise ProtocolError(f"{cls.__name__} of version {version} has {end - position} bytes too many")
    return message


class GroupRecordSerde:
    """The records as the runtime's `CoordinatorSerde`."""

    __slots__ = ()

    def encode(self, record: GroupRecord) -> CoordinatorRecord:
        return CoordinatorRecord(*encode_record(record))

    def decode(self, key: Buffer, value: Buffer | None) -> GroupRecord | None:
        """None for an unknown kind. Raises KafkaError CORRUPT_MESSAGE."""
        try:
            return decode_record(key, value)
        except ProtocolError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
