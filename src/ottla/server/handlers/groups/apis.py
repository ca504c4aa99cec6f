"""API table of this package."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.requests.api import ApiRow

GROUP_APIS: tuple[ApiRow[GroupContext], ...] = (
    ApiRow(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "ottla.server.handlers.groups.alter_share_group_offsets"),
    ApiRow(ApiKey.CONSUMER_GROUP_DESCRIBE, "ottla.server.handlers.groups.consumer_group_describe"),
    ApiRow(ApiKey.CONSUMER_GROUP_HEARTBEAT, "ottla.server.handlers.groups.consumer_group_heartbeat"),
    ApiRow(ApiKey.DELETE_GROUPS, "ottla.server.handlers.groups.delete_groups"),
    ApiRow(ApiKey.DELETE_SHARE_GROUP_OFFSETS, "ottla.server.handlers.groups.delete_share_group_offsets"),
    ApiRow(ApiKey.DESCRIBE_GROUPS, "ottla.server.handlers.groups.describe_groups"),
    ApiRow(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "ottla.server.handlers.groups.describe_share_group_offsets"),
    ApiRow(ApiKey.FIND_COORDINATOR, "ottla.server.handlers.groups.find_coordinator"),
    ApiRow(ApiKey.HEARTBEAT, "ottla.server.handlers.groups.heartbeat"),
    ApiRow(ApiKey.JOIN_GROUP, "ottla.server.handlers.groups.join_group"),
    ApiRow(ApiKey.LEAVE_GROUP, "ottla.server.handlers.groups.leave_group"),
    ApiRow(ApiKey.LIST_GROUPS, "ottla.server.handlers.groups.list_groups"),
    ApiRow(ApiKey.OFFSET_COMMIT, "ottla.server.handlers.groups.offset_commit"),
    ApiRow(ApiKey.OFFSET_DELETE, "ottla.server.handlers.groups.offset_delete"),
    ApiRow(ApiKey.OFFSET_FETCH, "ottla.server.handlers.groups.offset_fetch"),
    ApiRow(ApiKey.SHARE_GROUP_DESCRIBE, "ottla.server.handlers.groups.share_group_describe"),
    ApiRow(ApiKey.SHARE_GROUP_HEARTBEAT, "ottla.server.handlers.groups.share_group_heartbeat"),
    ApiRow(ApiKey.SYNC_GROUP, "ottla.server.handlers.groups.sync_group"),
    ApiRow(ApiKey.TXN_OFFSET_COMMIT, "ottla.server.handlers.groups.txn_offset_commit"),
)
