"""State of share partitions as the share coordinator keeps it, and the interface to it (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from ottla.common.kafka.ids import Uuid


class RecordState(IntEnum):
    """State of a record within a share partition; ACQUIRED exists only in the memory of the leader."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


@dataclass(frozen=True, slots=True)
class SharePartitionKey:
    """A partition of a topic as one share group reads it."""

    group_id: str
    topic_id: Uuid
    partition: int


@dataclass(frozen=True, slots=True)
class StateBatch:
    """Consecutive offsets, both inclusive, in one state with one delivery count."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """Stored state of a share partition. `start_offset` is -1 while no offset was chosen."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class ShareStateSummary:
    """Stored state without its batches. `delivery_complete_count` is -1 where it is unknown."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


class SharePersister(Protocol):
    """Access to share coordinators: finds the coordinator of each key, retries retriable errors, combines calls.

    Every method raises KafkaError with the code of the coordinator's answer, or with the last retriable code when its
    time is over.
    """

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Create the state, or reset it with a newer `state_epoch`; `start_offset` -1: chosen at the first fetch."""

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """Return the state and fence leaders of epochs below `leader_epoch`."""
        ...

    async def write(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """Add `batches` to the state; `start_offset` -1 leaves the stored one."""

    async def delete(self, key: SharePartitionKey) -> None:
        """Delete the state; without an error if there is none."""

    async def summarize(self, key: SharePartitionKey, leader_epoch: int = -1) -> ShareStateSummary:
        """Return the state without its batches; `leader_epoch` -1: no check of the epoch."""
        ...
