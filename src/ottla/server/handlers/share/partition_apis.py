"""API table of share partitions."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey
from ottla.server.handlers.share.partition_context import SharePartitionContext
from ottla.server.requests.api import ApiRow

SHARE_PARTITION_APIS: tuple[ApiRow[SharePartitionContext], ...] = (
    ApiRow(ApiKey.SHARE_ACKNOWLEDGE, "ottla.server.handlers.share.share_acknowledge"),
    ApiRow(ApiKey.SHARE_FETCH, "ottla.server.handlers.share.share_fetch"),
)
