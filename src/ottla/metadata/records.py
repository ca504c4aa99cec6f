"""Metadata records as bytes: the value of one record of `__cluster_metadata`.

Layout (KIP-500, `MetadataRecordSerde`): frame version 1, record key and record version as unsigned varints, then the
body in the layout of that version. Versions written are those of metadata.version 4.0-IV3, the one level this broker
supports; every version declared is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.common.disk import Buffer
from ottla.common.errors import KafkaError, ProtocolError
from ottla.metadata.image import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
    VersionRange,
)
from ottla.protocol.codec import MAX_RESPONSE_ELEMENTS, read_message, write_message
from ottla.protocol.messages.metadata_records import (
    METADATA_RECORDS,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from ottla.record.varint import read_unsigned_varint, write_unsigned_varint

FRAME_VERSION = 1
METADATA_VERSION_LEVEL = 25
"""4.0-IV3."""
GROUP_VERSION_LEVEL = 1
ELIGIBLE_LEADER_REPLICAS_LEVEL = 1
TRANSACTION_VERSION_LEVEL = 2

SUPPORTED_FEATURES: Mapping[str, VersionRange] = {
    METADATA_VERSION: VersionRange(METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL),
    GROUP_VERSION: VersionRange(0, GROUP_VERSION_LEVEL),
    ELIGIBLE_LEADER_REPLICAS_VERSION: VersionRange(0, ELIGIBLE_LEADER_REPLICAS_LEVEL),
    TRANSACTION_VERSION: VersionRange(0, TRANSACTION_VERSION_LEVEL),
}
"""Features whose behaviour is complete, with the levels that can be finalized."""

_KEYS: Mapping[type, int] = {cls: key for key, cls in METADATA_RECORDS.items()}
_WRITE_VERSIONS: Mapping[type, int] = {
    RegisterBrokerRecord: 3,
    PartitionRecord: 2,
    PartitionChangeRecord: 2,
    BrokerRegistrationChangeRecord: 2,
}


class ApiMessageAndVersion(NamedTuple):
    """A record with the version in which it is written."""

    message: Any
    version: int


def versioned(message: object) -> ApiMessageAndVersion:
    """The record in the version of our metadata.version."""
    return ApiMessageAndVersion(message, _WRITE_VERSIONS.get(type(message), 0))


def encode_record(record: ApiMessageAndVersion) -> bytes:
    """The value of the log record."""
    out = bytearray()
    write_unsigned_varint(out, FRAME_VERSION)
    write_unsigned_varint(out, _KEYS[type(record.message)])
    write_unsigned_varint(out, record.version)
    write_message(record.message, record.version, out)
    return bytes(out)


def decode_record(value: Buffer) -> ApiMessageAndVersion:
    """Inverse of `encode_record`; raises ProtocolError for anything else, also for a kind that is not supported."""
    end = len(value)
    frame_version, position = read_unsigned_varint(value, 0, end)
    key, position = read_unsigned_varint(value, position, end)
    version, position = read_unsigned_varint(value, position, end)
    if frame_version != FRAME_VERSION:
        raise ProtocolError(f"metadata record of frame version {frame_version}, expected {FRAME_VERSION}")
    cls = METADATA_RECORDS.get(key)
    if cls is None:
        raise ProtocolError(f"metadata record of kind {key}, which this version does not support")
    message: Any
    try:
        message, position = read_message(cls, version, value, position, end, MAX_RESPONSE_ELEMENTS)
    except KafkaError as error:
        raise ProtocolError(f"metadata record {cls.__name__} of version {version} is not supported") from error
    if position != end:
        raise ProtocolError(f"metadata record {cls.__name__} has {end - position} bytes too many")
    return ApiMessageAndVersion(message, version)
