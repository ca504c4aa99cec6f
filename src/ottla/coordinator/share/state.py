"""State of one share partition, and its change by the records of `__share_group_state`.

A snapshot replaces the state, an update adds to it. Epochs and the start offset never decrease within the life of a
state: a snapshot with a newer state epoch begins it again.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.kafka.share_state import SharePartitionKey
from ottla.coordinator.share.batches import Batches, combine

NO_OFFSET = -1
"""Start offset of a state for which none was chosen yet."""
UNKNOWN_COUNT = -1
"""Delivery complete count of a state that is not known to have one (KIP-1226)."""


class ShareSnapshot(NamedTuple):
    """Record: the complete state of a share partition."""

    key: SharePartitionKey
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    created_ms: int
    written_ms: int
    batches: Batches


class ShareUpdate(NamedTuple):
    """Record: a change since the last snapshot."""

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Batches


class ShareDeletion(NamedTuple):
    """Record: the tombstone of a share partition."""

    key: SharePartitionKey


ShareRecord = ShareSnapshot | ShareUpdate | ShareDeletion


class StoredState(NamedTuple):
    """State of one share partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    """Highest epoch of a leader that has read the state; lower ones are fenced."""
    start_offset: int
    delivery_complete_count: int
    created_ms: int
    written_ms: int
    """Time of the last snapshot."""
    batches: Batches
    snapshot_offset: int
    """Offset of the last snapshot's record: the log is needed from there on."""
    updates: int
    """Number of updates since the last snapshot."""

    def snapshot(self, key: SharePartitionKey, now_ms: int) -> ShareSnapshot:
        """Return the record of a further snapshot of this state."""
        return ShareSnapshot(
            key,
            self.snapshot_epoch + 1,
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.delivery_complete_count,
            self.created_ms,
            now_ms,
            self.batches,
        )


def with_snapshot(before: StoredState | None, record: ShareSnapshot, offset: int) -> StoredState:
    """Return the state after `record` at `offset`. Fencing survives a snapshot with lower epochs."""
    return StoredState(
        record.snapshot_epoch,
        record.state_epoch if before is None else max(before.state_epoch, record.state_epoch),
        record.leader_epoch if before is None else max(before.leader_epoch, record.leader_epoch),
        record.start_offset,
        record.delivery_complete_count,
        record.created_ms,
        record.written_ms,
        combine((), record.batches, record.start_offset),
        offset,
        0,
    )


def with_update(before: StoredState | None, record: ShareUpdate, offset: int) -> StoredState:
    """Return the state after `record` at `offset`; without a state, which was unreadable, it begins with the update."""
    if before is None:
        before = StoredState(record.snapshot_epoch, 0, 0, NO_OFFSET, UNKNOWN_COUNT, 0, 0, (), offset, 0)
    start_offset = before.start_offset if record.start_offset == NO_OFFSET else record.start_offset
    return before._replace(
        leader_epoch=max(before.leader_epoch, record.leader_epoch),
        start_offset=start_offset,
        delivery_complete_count=record.delivery_complete_count,
        batches=combine(before.batches, record.batches, start_offset),
        updates=before.updates + 1,
    )
