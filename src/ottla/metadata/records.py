"""Codec for metadata records: the values of records in `__cluster_metadata`.

Layout (KIP-500, `MetadataRecordSerde`): frame version 1, record key and record version as unsigned varints, then the
body in the layout of that version. The finalized level of metadata.version selects the written versions (`at_level`);
every declared version is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from ottla.common.config.feature_levels import (
    CORDONED_DIRECTORIES,
    DIRECTORY_ASSIGNMENT,
    ELIGIBLE_LEADERS,
    FEATURE_LEVELS,
    HIGHEST_LEVEL,
    KRAFT_VERSION,
    LOWEST_LEVEL,
    METADATA_VERSION,
    MIGRATING_BROKERS,
)
from ottla.common.errors import KafkaError, ProtocolError
from ottla.common.platform.disk import Buffer
from ottla.metadata.image import VersionRange
from ottla.protocol.codec import MAX_RESPONSE_ELEMENTS, read_message, write_message
from ottla.protocol.messages.metadata_records import (
    METADATA_RECORDS,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from ottla.protocol.schema import Field, schema_of
from ottla.record.varint import read_unsigned_varint, write_unsigned_varint

FRAME_VERSION = 1

SUPPORTED_FEATURES: Mapping[str, VersionRange] = {
    METADATA_VERSION: VersionRange(LOWEST_LEVEL, HIGHEST_LEVEL),
    **{name: VersionRange(0, rows[-1].level) for name, rows in FEATURE_LEVELS.items()},
}
"""Completely implemented features, with the levels that can be finalized."""

REGISTERED_FEATURES: Mapping[str, VersionRange] = {**SUPPORTED_FEATURES, KRAFT_VERSION: VersionRange(0, 1)}
"""Features in a node's registration. Adds kraft.version (KIP-853), which no feature record sets, and without which an
active controller of Apache Kafka rejects registrations."""

_KEYS: Mapping[type, int] = {cls: key for key, cls in METADATA_RECORDS.items()}
_WRITE_VERSIONS: Mapping[type, Sequence[tuple[int, int]]] = {
    RegisterBrokerRecord: ((CORDONED_DIRECTORIES, 4), (DIRECTORY_ASSIGNMENT, 3), (MIGRATING_BROKERS, 2), (0, 1)),
    BrokerRegistrationChangeRecord: ((CORDONED_DIRECTORIES, 3), (DIRECTORY_ASSIGNMENT, 2), (0, 1)),
    PartitionRecord: ((ELIGIBLE_LEADERS, 2), (DIRECTORY_ASSIGNMENT, 1), (0, 0)),
    PartitionChangeRecord: ((ELIGIBLE_LEADERS, 2), (DIRECTORY_ASSIGNMENT, 1), (0, 0)),
}
"""Record versions by the first metadata level that writes them, newest first; all other records have one version."""


class ApiMessageAndVersion(NamedTuple):
    """A record with the version in which it is written."""

    message: Any
    version: int


def versioned(message: object, level: int = HIGHEST_LEVEL) -> ApiMessageAndVersion:
    """Return the record in the version of that metadata level; `at_level` decides about appended records."""
    kind: Any = type(message)
    return ApiMessageAndVersion(message, _written_version(kind, level))


@cache
def _written_version(kind: type[object], level: int) -> int:
    versions = _WRITE_VERSIONS.get(kind, ((0, 0),))
    return next(version for since, version in versions if level >= since)


def at_level(records: Iterable[ApiMessageAndVersion], level: int) -> Iterator[ApiMessageAndVersion]:
    """Return the records in the versions of `level`, or of a level that one of them sets, from there on.

    Fields that the level lacks are dropped: directories, eligible leaders, cordoned directories. That loses nothing,
    since a level with these fields can't be downgraded.
    """
    for record in records:
        message = record.message
        kind: Any = type(message)
        if kind is FeatureLevelRecord and message.name == METADATA_VERSION:
            level = message.feature_level
        version = _written_version(kind, level)
        if kind in _WRITE_VERSIONS:
            for field in _fields_outside(kind, version):
                setattr(message, field.name, field.make_default())
        yield record if record.version == version else ApiMessageAndVersion(message, version)


@cache
def _fields_outside(cls: type[object], version: int) -> tuple[Field, ...]:
    """Return the fields of a record that the version lacks."""
    return tuple(field for field in schema_of(cls).fields if not field.versions.low <= version <= field.versions.high)


@cache
def _frame(kind: type[object], version: int) -> bytes:
    """Return the bytes before the body of a record."""
    out = bytearray()
    write_unsigned_varint(out, FRAME_VERSION)
    write_unsigned_varint(out, _KEYS[kind])
    write_unsigned_varint(out, version)
    return bytes(out)


def encode_record(record: ApiMessageAndVersion) -> bytes:
    """Return the value of the log record."""
    message, version = record
    kind: Any = type(message)
    out = bytearray(_frame(kind, version))
    write_message(message, version, out)
    return bytes(out)


def decode_record(value: Buffer) -> ApiMessageAndVersion:
    """Inverse of `encode_record`; raises ProtocolError for other bytes and for unsupported record types."""
    end = len(value)
    if end > 2 and value[0] | value[1] | value[2] < 0x80:  # three numbers of one byte: almost always
        frame_version, key, version = value[:3]
        position = 3
    else:
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
        raise ProtocolError(f"metadata record {cls.__name__} has {end - position} trailing bytes")
    return ApiMessageAndVersion(message, version)
