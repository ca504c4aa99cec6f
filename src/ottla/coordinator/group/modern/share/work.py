"""Requests to the share coordinator that result from operations of share groups (KIP-932).

The shard is pure: it returns this work with the response, and `server.coordination.share_groups` does it once the
records of the operation are committed. The result is reported to the shard by another operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.share_state import SharePartitionKey
from ottla.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from ottla.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

CHOSEN_AT_FIRST_FETCH = -1
"""Start offset of a new share partition: its leader applies share.auto.offset.reset."""


class StateInitialization(NamedTuple):
    """Share state to initialize: the start offset by partition."""

    group_id: str
    state_epoch: int
    """Group epoch of the operation; a later initialization has a higher one."""
    start_offsets: Mapping[SharePartitionKey, int]


class StateDeletion(NamedTuple):
    """Share state to delete, by topic."""

    group_id: str
    keys: Mapping[Uuid, tuple[SharePartitionKey, ...]]


class ShareHeartbeat(NamedTuple):
    """Result of a heartbeat. The response does not wait for the initialization."""

    response: ShareGroupHeartbeatResponse
    initialization: StateInitialization | None = None


class OffsetAlteration(NamedTuple):
    """Result of AlterShareGroupOffsets; the response has no errors of the initialization yet."""

    response: AlterShareGroupOffsetsResponse
    initialization: StateInitialization | None = None


class OffsetDeletion(NamedTuple):
    """Result of DeleteShareGroupOffsets; the response has no errors of the deletion yet."""

    response: DeleteShareGroupOffsetsResponse
    deletion: StateDeletion | None = None


class InitializedState(NamedTuple):
    """Outcome of an initialization, as a request to the shard."""

    group_id: str
    keys: frozenset[SharePartitionKey]
    failed: frozenset[SharePartitionKey] = frozenset()


class DeletedState(NamedTuple):
    """Outcome of a deletion, as a request to the shard: the topics without state, and those whose state remains."""

    group_id: str
    topic_ids: frozenset[Uuid]
    failed: frozenset[Uuid] = frozenset()


def by_topic(keys: frozenset[SharePartitionKey]) -> dict[Uuid, frozenset[int]]:
    """Return the partitions by topic."""
    found: dict[Uuid, set[int]] = {}
    for key in keys:
        found.setdefault(key.topic_id, set()).add(key.partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}
