"""SyncGroup (key 14): the leader of a classic group sends the assignments, every member fetches its own.

1 adds the throttle time, 3 static membership (KIP-345), 4 is flexible, 5 adds protocol type and name to request and
response (KIP-559).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BYTES, INT16, INT32, STRING, array, f, message, struct


@struct
class SyncGroupRequestAssignment:
    member_id: str = f(STRING, "0+")
    assignment: bytes = f(BYTES, "0+")


@message("0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = f(STRING, "0+")
    generation_id: int = f(INT32, "0+")
    member_id: str = f(STRING, "0+")
    group_instance_id: str | None = f(STRING, "3+", nullable="3+", default=None)
    protocol_type: str | None = f(STRING, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = f(STRING, "5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = f(array(SyncGroupRequestAssignment), "0+")


@message("0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int = f(INT32, "1+", ignorable=True)
    error_code: int = f(INT16, "0+")
    protocol_type: str | None = f(STRING, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = f(STRING, "5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = f(BYTES, "0+")


SPEC = ApiSpec(ApiKey.SYNC_GROUP, SyncGroupRequest, SyncGroupResponse)
