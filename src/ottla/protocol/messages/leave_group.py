"""LeaveGroup (key 13): members leave a classic group.

1 adds the throttle time, 3 takes several members, by id or instance id (KIP-345), 4 is flexible, 5 adds the reason
(KIP-800).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, array, f, message, struct


@struct
class MemberIdentity:
    member_id: str = f(STRING, "3+")
    group_instance_id: str | None = f(STRING, "3+", nullable="3+", default=None)
    reason: str | None = f(STRING, "5+", nullable="5+", default=None, ignorable=True)


@message("0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = f(STRING, "0+")
    member_id: str = f(STRING, "0-2")
    members: list[MemberIdentity] = f(array(MemberIdentity), "3+")


@struct
class MemberResponse:
    member_id: str = f(STRING, "3+")
    group_instance_id: str | None = f(STRING, "3+", nullable="3+")
    error_code: int = f(INT16, "3+")


@message("0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int = f(INT32, "1+", ignorable=True)
    error_code: int = f(INT16, "0+")
    members: list[MemberResponse] = f(array(MemberResponse), "3+")


SPEC = ApiSpec(ApiKey.LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse)
