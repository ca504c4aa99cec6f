"""API table of this package."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey
from ottla.server.handlers.data.context import DataContext
from ottla.server.requests.api import ApiRow

DATA_APIS: tuple[ApiRow[DataContext], ...] = (
    ApiRow(ApiKey.DELETE_RECORDS, "ottla.server.handlers.data.delete_records"),
    ApiRow(ApiKey.DESCRIBE_PRODUCERS, "ottla.server.handlers.data.describe_producers"),
    ApiRow(ApiKey.FETCH, "ottla.server.handlers.data.fetch"),
    ApiRow(ApiKey.LIST_OFFSETS, "ottla.server.handlers.data.list_offsets"),
    ApiRow(ApiKey.OFFSET_FOR_LEADER_EPOCH, "ottla.server.handlers.data.offset_for_leader_epoch"),
    ApiRow(ApiKey.PRODUCE, "ottla.server.handlers.data.produce"),
)
