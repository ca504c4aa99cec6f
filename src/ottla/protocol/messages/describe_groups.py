"""DescribeGroups (key 15): state and members of classic groups.

1 adds the throttle time, 3 authorized operations (KIP-430), 4 instance ids (KIP-345), 5 is flexible, 6 returns
GROUP_ID_NOT_FOUND for a missing group (KIP-1043).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, BYTES, INT16, INT32, STRING, array, f, message, struct


@message("0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[str] = f(array(STRING), "0+")
    include_authorized_operations: bool = f(BOOL, "3+")


@struct
class DescribedGroupMember:
    member_id: str = f(STRING, "0+")
    group_instance_id: str | None = f(STRING, "4+", nullable="4+", default=None, ignorable=True)
    client_id: str = f(STRING, "0+")
    client_host: str = f(STRING, "0+")
    member_metadata: bytes = f(BYTES, "0+")
    member_assignment: bytes = f(BYTES, "0+")


@struct
class DescribedGroup:
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "6+", nullable="6+", default=None)
    group_id: str = f(STRING, "0+")
    group_state: str = f(STRING, "0+")
    protocol_type: str = f(STRING, "0+")
    protocol_data: str = f(STRING, "0+")
    members: list[DescribedGroupMember] = f(array(DescribedGroupMember), "0+")
    authorized_operations: int = f(INT32, "3+", default=-2147483648)


@message("0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = f(INT32, "1+", ignorable=True)
    groups: list[DescribedGroup] = f(array(DescribedGroup), "0+")


SPEC = ApiSpec(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse)
