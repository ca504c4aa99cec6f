"""Compact in-memory form of a committed offset: the value of its record, as stored in the log.

A coordinator may store millions. One `bytes` object each takes a third of the memory of an object with fields, and the
garbage collector, which would block the loop to walk such objects, skips it. Commits and loads need no conversion.
Stored are version 4, and version 1 for an offset with its own expiry.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from ottla.common.errors import ProtocolError
from ottla.common.kafka.ids import ZERO_UUID, Uuid
from ottla.protocol.codec import read_message, write_message
from ottla.protocol.messages.coordinator_records import OffsetCommitValue

_VERSION = 4
_VERSION_WITH_EXPIRY = 1
_VERSION_POSITION = 1
"""Position of the version's lower byte."""

_INT16 = Struct(">h")
_INT64 = Struct(">q")
_HEAD = Struct(">hqiB")
"""Version, offset, leader epoch, and the metadata length plus one, if that is a one-byte varint."""
_LENGTH_POSITION = _HEAD.size - 1
_LONG_VARINT = 0x80
_NO_TAGS = b"\0"
_TOPIC_ID_TAG = b"\1\0\x10"
_TOPIC_ID_TAG_SIZE = len(_TOPIC_ID_TAG) + 16

NO_TIMESTAMP = -1
MAX_TIMESTAMP = 2**63 - 1


class CommittedOffset(NamedTuple):
    """A committed offset of one partition; times in milliseconds since the epoch."""

    offset: int
    leader_epoch: int
    commit_timestamp: int
    expire_timestamp: int
    """Set by clients of old versions only, then without leader epoch and topic id. With NO_TIMESTAMP the group's
    retention applies."""
    topic_id: Uuid
    """Zero if it was unknown at the time of the commit."""
    metadata: str


def pack(
    offset: int, leader_epoch: int, commit_timestamp: int, expire_timestamp: int, topic_id: Uuid, metadata: str
) -> bytes:
    """Encode the fields of a `CommittedOffset`."""
    return packer(commit_timestamp, expire_timestamp, topic_id)(offset, leader_epoch, metadata)


def packer(commit_timestamp: int, expire_timestamp: int, topic_id: Uuid) -> Callable[[int, int, str], bytes]:
    """Return a faster `pack` for many offsets of one commit and topic; takes offset, leader epoch and metadata."""
    pack_head, version = _HEAD.pack, _VERSION
    tail = _INT64.pack(commit_timestamp) + (_NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id)

    def unusual(offset: int, leader_epoch: int, metadata: str) -> bytes:
        used = _VERSION if expire_timestamp == NO_TIMESTAMP else _VERSION_WITH_EXPIRY
        value = OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            commit_timestamp=commit_timestamp,
            expire_timestamp=expire_timestamp,
            topic_id=topic_id,
        )
        out = bytearray(_INT16.pack(used))
        write_message(value, used, out)
        return bytes(out)

    def usual(offset: int, leader_epoch: int, metadata: str) -> bytes:
        if not metadata:
            return pack_head(version, offset, leader_epoch, 1) + tail
        encoded = metadata.encode()
        if len(encoded) + 1 >= _LONG_VARINT:
            return unusual(offset, leader_epoch, metadata)
        return pack_head(version, offset, leader_epoch, len(encoded) + 1) + encoded + tail

    return usual if expire_timestamp == NO_TIMESTAMP else unusual


def is_usual(packed: bytes) -> bool:
    """Return whether this is a complete version 4 with short metadata; other values may be other versions, or corrupt.

    A load calls this for every record; it takes a fraction of the time of decoding.
    """
    size = len(packed)
    if size <= _LENGTH_POSITION or packed[0] or packed[_VERSION_POSITION] != _VERSION:
        return False
    metadata_length = packed[_LENGTH_POSITION]
    if not 1 <= metadata_length < _LONG_VARINT:
        return False
    metadata_end = _LENGTH_POSITION + metadata_length
    tail = packed[metadata_end + _INT64.size :]
    if tail != _NO_TAGS and (len(tail) != _TOPIC_ID_TAG_SIZE or not tail.startswith(_TOPIC_ID_TAG)):
        return False
    if metadata_length > 1:
        try:
            packed[_HEAD.size : metadata_end].decode()
        except UnicodeDecodeError:
            return False
    return True


def unpack(packed: bytes) -> CommittedOffset:
    """Inverse of `pack`; raises ProtocolError for values that `pack` did not create."""
    try:
        version, offset, leader_epoch, metadata_length = _HEAD.unpack_from(packed)
        if version != _VERSION or not 1 <= metadata_length < _LONG_VARINT:
            return _unpack_unusual(packed)
        metadata_end = _LENGTH_POSITION + metadata_length
        (commit_timestamp,) = _INT64.unpack_from(packed, metadata_end)
    except StructError as error:
        raise ProtocolError(f"a committed offset is corrupt ({len(packed)} bytes)") from error
    tail = packed[metadata_end + _INT64.size :]
    topic_id = ZERO_UUID if tail == _NO_TAGS else tail[len(_TOPIC_ID_TAG) :]
    metadata = packed[_HEAD.size : metadata_end].decode()
    return CommittedOffset(offset, leader_epoch, commit_timestamp, NO_TIMESTAMP, topic_id, metadata)


def _unpack_unusual(packed: bytes) -> CommittedOffset:
    version = _INT16.unpack_from(packed)[0]
    value, _ = read_message(OffsetCommitValue, version, packed, _INT16.size, len(packed))
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
        value.metadata,
    )


def is_expired(packed: bytes, now_ms: int, retention_ms: int, since_ms: int | None) -> bool:
    """Return whether the offset expired, by its own expiry or else by retention since `since_ms` (None: its commit)."""
    metadata_length = packed[_LENGTH_POSITION]
    if packed[_VERSION_POSITION] == _VERSION and metadata_length < _LONG_VARINT:
        (commit_timestamp,) = _INT64.unpack_from(packed, _LENGTH_POSITION + metadata_length)
        expire_timestamp = NO_TIMESTAMP
    else:
        offset = unpack(packed)
        commit_timestamp, expire_timestamp = offset.commit_timestamp, offset.expire_timestamp
    if expire_timestamp != NO_TIMESTAMP:
        return bool(now_ms >= expire_timestamp)
    return bool(now_ms - (commit_timestamp if since_ms is None else since_ms) >= retention_ms)
