"""JoinGroup (key 11): join a classic group, or its next generation.

1 adds the rebalance timeout (KIP-62), 2 the throttle time. From 4 on a member without an id gets one and has to rejoin
with it (KIP-394). 5 adds static membership (KIP-345), 6 is flexible, 7 returns the protocol type (KIP-559), 8 adds the
reason (KIP-800), 9 lets a leader skip the assignment (KIP-814).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, BYTES, INT16, INT32, STRING, array, f, message, struct


@struct
class JoinGroupRequestProtocol:
    name: str = f(STRING, "0+")
    metadata: bytes = f(BYTES, "0+")


@message("0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = f(STRING, "0+")
    session_timeout_ms: int = f(INT32, "0+")
    rebalance_timeout_ms: int = f(INT32, "1+", default=-1, ignorable=True)
    member_id: str = f(STRING, "0+")
    group_instance_id: str | None = f(STRING, "5+", nullable="5+", default=None)
    protocol_type: str = f(STRING, "0+")
    protocols: list[JoinGroupRequestProtocol] = f(array(JoinGroupRequestProtocol), "0+")
    reason: str | None = f(STRING, "8+", nullable="8+", default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    member_id: str = f(STRING, "0+")
    group_instance_id: str | None = f(STRING, "5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = f(BYTES, "0+")


@message("0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int = f(INT32, "2+", ignorable=True)
    error_code: int = f(INT16, "0+")
    generation_id: int = f(INT32, "0+", default=-1)
    protocol_type: str | None = f(STRING, "7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = f(STRING, "0+", nullable="7+")
    leader: str = f(STRING, "0+")
    skip_assignment: bool = f(BOOL, "9+")
    member_id: str = f(STRING, "0+")
    members: list[JoinGroupResponseMember] = f(array(JoinGroupResponseMember), "0+")


SPEC = ApiSpec(ApiKey.JOIN_GROUP, JoinGroupRequest, JoinGroupResponse)
