"""API table of this package."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey
from ottla.server.handlers.share.context import ShareContext
from ottla.server.requests.api import ApiRow

_PACKAGE = "ottla.server.handlers.share"

SHARE_APIS: tuple[ApiRow[ShareContext], ...] = (
    ApiRow(ApiKey.INITIALIZE_SHARE_GROUP_STATE, f"{_PACKAGE}.initialize_share_group_state", throttled=False),
    ApiRow(ApiKey.READ_SHARE_GROUP_STATE, f"{_PACKAGE}.read_share_group_state", throttled=False),
    ApiRow(ApiKey.WRITE_SHARE_GROUP_STATE, f"{_PACKAGE}.write_share_group_state", throttled=False),
    ApiRow(ApiKey.DELETE_SHARE_GROUP_STATE, f"{_PACKAGE}.delete_share_group_state", throttled=False),
    ApiRow(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, f"{_PACKAGE}.read_share_group_state_summary", throttled=False),
)
