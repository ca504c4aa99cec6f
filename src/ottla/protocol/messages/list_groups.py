"""ListGroups (key 16): every group that this broker coordinates.

1 adds the throttle time, 3 is flexible, 4 filters by and returns states (KIP-518), 5 types (KIP-848).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, array, f, message, struct


@message("0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[str] = f(array(STRING), "4+")
    types_filter: list[str] = f(array(STRING), "5+")


@struct
class ListedGroup:
    group_id: str = f(STRING, "0+")
    protocol_type: str = f(STRING, "0+")
    group_state: str = f(STRING, "4+", ignorable=True)
    group_type: str = f(STRING, "5+", ignorable=True)


@message("0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = f(INT32, "1+", ignorable=True)
    error_code: int = f(INT16, "0+")
    groups: list[ListedGroup] = f(array(ListedGroup), "0+")


SPEC = ApiSpec(ApiKey.LIST_GROUPS, ListGroupsRequest, ListGroupsResponse)
