"""DeleteGroups (key 42): remove empty groups with their offsets (KIP-229).

1 equals 0, 2 is flexible, 3 adds a message to each error (KIP-1331).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, array, f, message, struct


@message("0-3", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = f(array(STRING), "0+")


@struct
class DeletableGroupResult:
    group_id: str = f(STRING, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "3+", nullable="3+", default=None, ignorable=True)


@message("0-3", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    results: list[DeletableGroupResult] = f(array(DeletableGroupResult), "0+")


SPEC = ApiSpec(ApiKey.DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse)
