"""Control records: what kind one is, and the keys that say so.

A control batch holds one record, or several in the metadata log. The values of those other than transaction markers
are message schemas of `ottla.protocol`.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from ottla.record.batch import Record
from ottla.record.errors import InvalidRecord

_KEY = struct.Struct(">hh")
_KEY_VERSION = 0


class ControlRecordType(IntEnum):
    """Kafka's numbers; a number not listed here is UNKNOWN."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_record_key(record_type: ControlRecordType) -> bytes:
    """The key of a control record of that type."""
    return _KEY.pack(_KEY_VERSION, record_type)


def control_record_type(record: Record) -> ControlRecordType:
    """The type that the key of a control batch's record names; raises InvalidRecord when there is no such key."""
    if record.key is None or len(record.key) < _KEY.size:
        raise InvalidRecord(f"the control record at offset {record.offset} has no type")
    version, number = _KEY.unpack_from(record.key)
    if version < 0:
        raise InvalidRecord(f"the control record at offset {record.offset} has key version {version}")
    try:
        return ControlRecordType(number)
    except ValueError:
        return ControlRecordType.UNKNOWN
