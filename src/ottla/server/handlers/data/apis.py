"""API table of this package."""

from __future__ import annotations

from ottla.server.handlers.data.context import DataContext
from ottla.server.handlers.data.delete_records import DELETE_RECORDS
from ottla.server.handlers.data.describe_producers import DESCRIBE_PRODUCERS
from ottla.server.handlers.data.fetch import FETCH
from ottla.server.handlers.data.list_offsets import LIST_OFFSETS
from ottla.server.handlers.data.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from ottla.server.handlers.data.produce import PRODUCE
from ottla.server.requests.api import Api

DATA_APIS: tuple[Api[DataContext], ...] = (
    DELETE_RECORDS,
    DESCRIBE_PRODUCERS,
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
