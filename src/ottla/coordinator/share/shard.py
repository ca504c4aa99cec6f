"""One shard of the share coordinator: the share partitions of one partition of `__share_group_state`.

An operation checks its request against the current state and returns a record; only `replay` changes the state. The
first record of a share partition is a snapshot; after `updates_per_snapshot` updates the next one is a snapshot again.
`housekeeping` keeps the log short.

A write never changes the leader epoch: the leader has read the state in its epoch before. The checks are those of
Apache Kafka 4.4 (KIP-932), with three additions: a reset keeps the leader epoch, so that the fence of old leaders
survives a load; only a newer state epoch resets; and a state has at most MAX_BATCHES batches.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.share_state import SharePartitionKey, ShareState, ShareStateSummary, StateBatch
from ottla.common.logs import RATE_LIMITED
from ottla.coordinator.runtime import EMPTY_RESULT, CoordinatorResult, CoordinatorTimer
from ottla.coordinator.share.batches import combine
from ottla.coordinator.share.context import ShardContext
from ottla.coordinator.share.housekeeping import Housekeeping
from ottla.coordinator.share.memory import BATCH_BYTES, state_bytes
from ottla.coordinator.share.records import is_valid
from ottla.coordinator.share.state import (
    NO_OFFSET,
    UNKNOWN_COUNT,
    ShareDeletion,
    ShareRecord,
    ShareSnapshot,
    ShareUpdate,
    StoredState,
    with_snapshot,
    with_update,
)
from ottla.timeline import SnapshotRegistry, TimelineDict, TimelineValue

logger = logging.getLogger(__name__)

MAX_BATCHES = 10_000
"""Batches of one share partition: a leader locks at most 10,000 records (`group.share.max.partition.max.record.locks`).
Their snapshot has 200 kilobytes."""
NO_EPOCH = -1

UNKNOWN_SUMMARY = ShareStateSummary(0, 0, NO_OFFSET, UNKNOWN_COUNT)
"""Summary of a share partition without state, as in Apache Kafka."""


class ShareCoordinatorShard:
    """State machine of share partitions that the coordinator runtime loads, replays into and calls."""

    __slots__ = ("_context", "_held_bytes", "housekeeping", "states")

    def __init__(
        self, context: ShardContext, partition: int, registry: SnapshotRegistry, timer: CoordinatorTimer
    ) -> None:
        self._context = context
        self.states: TimelineDict[SharePartitionKey, StoredState] = TimelineDict(registry)
        self._held_bytes = TimelineValue(registry, 0)
        self.housekeeping = Housekeeping(context, partition, registry, timer, self.states)

    # --- CoordinatorShard ---------------------------------------------------------------------------------------------

    def replay(self, offset: int, record: ShareRecord, producer_id: int, producer_epoch: int) -> None:
        """Apply one record, while loading or right before it is appended. This topic has no transactional records."""
        key = record.key
        before = self.states.get(key)
        self.housekeeping.replayed(offset)
        grown = 0 if before is None else -state_bytes(key, len(before.batches))
        if isinstance(record, ShareDeletion):
            if before is not None:
                del self.states[key]
        else:
            after = (
                with_snapshot(before, record, offset)
                if isinstance(record, ShareSnapshot)
                else with_update(before, record, offset)
            )
            self.states[key] = after
            grown += state_bytes(key, len(after.batches))
        if grown:
            self._held_bytes.value += grown

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """Does nothing: the topic contains no transactional records."""

    def loaded(self) -> None:
        """Everything was replayed: start the timers."""
        self._context.memory.loaded(self.held_bytes)
        self.housekeeping.loaded()

    def unloaded(self) -> None:
        """Leadership is lost; nothing waits in soft state."""

    def release(self) -> Iterator[None]:
        """Release the states in short steps."""
        while self.states:
            dict.popitem(self.states)
            yield

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the shard."""
        return self._held_bytes.value

    # --- operations ---------------------------------------------------------------------------------------------------

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> CoordinatorResult[ShareRecord, None]:
        """Create the state, or begin it again in a newer state epoch; a repeated request changes nothing.

        It may arrive when the leader has chosen a start offset and stored acknowledgements in this state epoch.

        Errors: INVALID_REQUEST, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION; COORDINATOR_NOT_AVAILABLE at the memory
        limit.
        """
        self._check_partition(key)
        if state_epoch < 0 or start_offset < NO_OFFSET:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The state epoch or the start offset is negative.")
        before = self.states.get(key)
        if before is not None and before.state_epoch > state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, "The state epoch is older than the stored one.")
        self._check_exists(key)
        if before is not None and before.state_epoch == state_epoch:
            return EMPTY_RESULT
        if before is None:
            self._admit(state_bytes(key, 0))
        now_ms = self._context.clock.time_ms()
        snapshot = ShareSnapshot(
            key,
            0 if before is None else before.snapshot_epoch + 1,
            state_epoch,
            0 if before is None else before.leader_epoch,
            start_offset,
            UNKNOWN_COUNT if start_offset == NO_OFFSET else 0,
            now_ms,
            now_ms,
            (),
        )
        return CoordinatorResult((snapshot,))

    def read(self, key: SharePartitionKey, leader_epoch: int) -> CoordinatorResult[ShareRecord, ShareState]:
        """Return the state, and store a newer leader epoch.

        Errors: INVALID_REQUEST, also without a state; FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._check_partition(key)
        _check_epoch("leader", leader_epoch)
        state = self._initialized(key)
        if state.leader_epoch > leader_epoch:
            raise _fenced_leader()
        self._check_exists(key)
        response = ShareState(state.state_epoch, state.start_offset, state.batches)
        if state.leader_epoch == leader_epoch:
            return CoordinatorResult((), response)
        self._context.statistics.writes += 1
        changed = state._replace(leader_epoch=leader_epoch)
        return CoordinatorResult((self._record(key, changed, ()),), response)

    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> CoordinatorResult[ShareRecord, None]:
        """Add batches to the state. The start offset never decreases.

        Errors: INVALID_REQUEST, also without a state; FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH,
        UNKNOWN_TOPIC_OR_PARTITION; COORDINATOR_NOT_AVAILABLE at the memory limit.
        """
        self._check_partition(key)
        _check_epoch("leader", leader_epoch)
        _check_epoch("state", state_epoch)
        state = self._initialized(key)
        if state.leader_epoch > leader_epoch:
            raise _fenced_leader()
        if state.state_epoch > state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, "The state epoch is older than the stored one.")
        self._check_exists(key)
        if start_offset < NO_OFFSET or not all(map(is_valid, batches)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The start offset or a state batch is invalid.")
        after = state._replace(
            start_offset=max(state.start_offset, start_offset),
            delivery_complete_count=_complete_count(state, start_offset, delivery_complete_count),
        )
        merged = combine(state.batches, batches, after.start_offset)
        if len(merged) > MAX_BATCHES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"A share partition has at most {MAX_BATCHES} state batches.")
        self._admit((len(merged) - len(state.batches)) * BATCH_BYTES)
        self._context.statistics.writes += 1
        return CoordinatorResult((self._record(key, after, combine((), batches, after.start_offset)),))

    def delete(self, key: SharePartitionKey) -> CoordinatorResult[ShareRecord, None]:
        """Delete the state; succeeds without one.

        Errors: INVALID_REQUEST; UNKNOWN_TOPIC_OR_PARTITION only without a state, since the topic may be deleted first.
        """
        self._check_partition(key)
        if key in self.states:
            return CoordinatorResult((ShareDeletion(key),))
        self._check_exists(key)
        return EMPTY_RESULT

    def summarize(self, key: SharePartitionKey, leader_epoch: int, committed_offset: int) -> ShareStateSummary:
        """Return the state without its batches, UNKNOWN_SUMMARY without a state.

        Errors: INVALID_REQUEST, FENCED_LEADER_EPOCH unless `leader_epoch` is -1, UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._check_partition(key)
        state = self.states.get_at(key, committed_offset)
        if state is not None and NO_EPOCH < leader_epoch < state.leader_epoch:
            raise _fenced_leader()
        self._check_exists(key)
        if state is None:
            return UNKNOWN_SUMMARY
        return ShareStateSummary(
            state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count
        )

    def topics_deleted(self, topic_ids: Collection[Uuid]) -> CoordinatorResult[ShareRecord, None]:
        """Delete the states of deleted topics."""
        gone = [key for key in self.states if key.topic_id in topic_ids]
        return CoordinatorResult(tuple(map(ShareDeletion, gone)), atomic=False)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _record(self, key: SharePartitionKey, after: StoredState, added: tuple[StateBatch, ...]) -> ShareRecord:
        """Return the record that changes the state to `after`, with `added` batches."""
        if after.updates >= self._context.config.updates_per_snapshot:
            now_ms = self._context.clock.time_ms()
            merged = combine(after.batches, added, after.start_offset)
            return after._replace(batches=merged, created_ms=now_ms).snapshot(key, now_ms)
        return ShareUpdate(
            key, after.snapshot_epoch, after.leader_epoch, after.start_offset, after.delivery_complete_count, added
        )

    @staticmethod
    def _check_partition(key: SharePartitionKey) -> None:
        if key.partition < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition is negative.")

    def _check_exists(self, key: SharePartitionKey) -> None:
        topic = self._context.image().topic_by_id(key.topic_id)
        if topic is None or key.partition not in topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic or the partition does not exist.")

    def _initialized(self, key: SharePartitionKey) -> StoredState:
        state = self.states.get(key)
        if state is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The share partition is not initialized.")
        return state

    def _admit(self, growth_bytes: int) -> None:
        if growth_bytes > 0 and not self._context.memory.admits(growth_bytes):
            text = "the state of share partitions has reached share.coordinator.max.bytes"
            logger.warning("rejecting state of share groups: %s", text, extra=RATE_LIMITED)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The coordinator has no memory: {text}.")


def _check_epoch(kind: str, epoch: int) -> None:
    if epoch < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The {kind} epoch is negative.")


def _fenced_leader() -> KafkaError:
    return KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "The leader epoch is older than the stored one.")


def _complete_count(state: StoredState, start_offset: int, delivery_complete_count: int) -> int:
    """Return the count that belongs to the later start offset, as Apache Kafka does."""
    if start_offset == state.start_offset:
        return max(delivery_complete_count, state.delivery_complete_count)
    return delivery_complete_count if start_offset > state.start_offset else state.delivery_complete_count
