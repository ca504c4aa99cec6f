"""A committed offset as it is kept in memory: packed bytes.

A coordinator may hold millions. As one `bytes` each they take a third of what an object with fields takes, and the
garbage collector, which would stop the loop to walk such objects, does not look at them.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ottla.common.ids import Uuid

_FIXED = Struct(">qiqq16s")
_COMMIT_TIMESTAMP = Struct(">qq")
_COMMIT_TIMESTAMP_POSITION = 12

NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1
MAX_TIMESTAMP = 2**63 - 1


class CommittedOffset(NamedTuple):
    """What a consumer committed for a partition; times in milliseconds since the epoch."""

    offset: int
    leader_epoch: int
    commit_timestamp: int
    expire_timestamp: int
    """Set by clients of old versions only; NO_TIMESTAMP: the group's retention decides."""
    topic_id: Uuid
    """Zero where it was not known at the time."""
    metadata: str


def pack(
    offset: int, leader_epoch: int, commit_timestamp: int, expire_timestamp: int, topic_id: Uuid, metadata: str
) -> bytes:
    """The fields of a `CommittedOffset`, without making one: a load does this for every record."""
    fixed = _FIXED.pack(offset, leader_epoch, commit_timestamp, expire_timestamp, topic_id)
    return fixed + metadata.encode() if metadata else fixed


def unpack(packed: bytes) -> CommittedOffset:
    """Inverse of `pack`."""
    offset, leader_epoch, commit_timestamp, expire_timestamp, topic_id = _FIXED.unpack_from(packed)
    metadata = packed[_FIXED.size :].decode()
    return CommittedOffset(offset, leader_epoch, commit_timestamp, expire_timestamp, topic_id, metadata)


def is_expired(packed: bytes, now_ms: int, retention_ms: int, since_ms: int | None) -> bool:
    """Whether the offset's own expiry, else the retention since `since_ms` (None: since its commit), has passed."""
    commit_timestamp, expire_timestamp = _COMMIT_TIMESTAMP.unpack_from(packed, _COMMIT_TIMESTAMP_POSITION)
    if expire_timestamp != NO_TIMESTAMP:
        return bool(now_ms >= expire_timestamp)
    return bool(now_ms - (commit_timestamp if since_ms is None else since_ms) >= retention_ms)
