"""Housekeeping of one shard: snapshots of cold share partitions, deletion of records that are no longer needed.

A load needs the records of a share partition from its last snapshot on. So the log may be deleted below the lowest
offset of these snapshots. A share partition without writes would keep all records behind its snapshot: a cold one gets
a new snapshot. That happens only while more records would become deletable than are in use, so an idle shard writes
nothing.

Records are deleted only after the snapshots that replace them are committed.
"""

from __future__ import annotations

import heapq

from ottla.common.errors import KafkaError
from ottla.common.kafka.share_state import SharePartitionKey
from ottla.coordinator.runtime import CoordinatorResult, CoordinatorTimer
from ottla.coordinator.share.context import ShardContext
from ottla.coordinator.share.state import ShareDeletion, ShareRecord, StoredState
from ottla.timeline import SnapshotRegistry, TimelineDict, TimelineValue

SNAPSHOT_TIMER = "snapshot-cold-partitions"
PRUNE_TIMER = "prune-state-records"

WRITTEN_PER_STEP = 100
"""Snapshots of cold share partitions, and tombstones of deleted topics, in one step; other requests run between two."""
STEP_INTERVAL_MS = 100

Result = CoordinatorResult[ShareRecord, None]


class Housekeeping:
    """The timers of one shard."""

    __slots__ = ("_context", "_next_offset", "_partition", "_pruned", "_states", "_timer")

    def __init__(
        self,
        context: ShardContext,
        partition: int,
        registry: SnapshotRegistry,
        timer: CoordinatorTimer,
        states: TimelineDict[SharePartitionKey, StoredState],
    ) -> None:
        self._context = context
        self._partition = partition
        self._timer = timer
        self._states = states
        self._next_offset = TimelineValue(registry, 0)
        """Offset after the last record."""
        self._pruned = 0
        """First offset that the last deletion kept."""

    def replayed(self, offset: int) -> None:
        """A record at `offset` is being replayed."""
        self._next_offset.value = offset + 1

    def loaded(self) -> None:
        """Start the timers."""
        config = self._context.config
        self._timer.schedule(SNAPSHOT_TIMER, config.cold_snapshot_interval_ms, self.snapshot_cold_partitions)
        self._timer.schedule(PRUNE_TIMER, config.prune_interval_ms, self.prune)

    def first_needed_offset(self) -> int:
        """Return the offset from which a load needs the log."""
        offsets = (state.snapshot_offset for state in self._states.values())
        return min(offsets, default=self._next_offset.value)

    # --- cold share partitions ----------------------------------------------------------------------------------------

    def snapshot_cold_partitions(self) -> Result:
        """Run one step: delete states of topics that no longer exist, and write the oldest cold states again."""
        topics = self._context.image().topics_by_id
        gone = [key for key in self._states if key.topic_id not in topics]
        records: list[ShareRecord] = [ShareDeletion(key) for key in gone[:WRITTEN_PER_STEP]]
        if not records:
            records = self._cold_snapshots()
        full = len(records) >= WRITTEN_PER_STEP
        delay_ms = STEP_INTERVAL_MS if full else self._context.config.cold_snapshot_interval_ms
        self._timer.schedule(SNAPSHOT_TIMER, delay_ms, self.snapshot_cold_partitions)
        return CoordinatorResult(records, atomic=False)

    def _cold_snapshots(self) -> list[ShareRecord]:
        used = sum(1 + state.updates for state in self._states.values())
        if self._next_offset.value - self.first_needed_offset() < 2 * used:
            return []
        now_ms = self._context.clock.time_ms()
        oldest_ms = now_ms - self._context.config.cold_snapshot_interval_ms
        cold = ((state.snapshot_offset, key) for key, state in self._states.items() if state.written_ms <= oldest_ms)
        chosen = heapq.nsmallest(WRITTEN_PER_STEP, cold, key=lambda each: each[0])
        return [self._states[key].snapshot(key, now_ms) for _, key in chosen]

    # --- pruning ------------------------------------------------------------------------------------------------------

    def prune(self) -> Result:
        """Delete the records below the first needed offset, once everything that was seen here is committed."""
        offset = self.first_needed_offset()
        self._timer.schedule(PRUNE_TIMER, self._context.config.prune_interval_ms, self.prune)
        if offset <= self._pruned:
            return CoordinatorResult()

        def committed(error: KafkaError | None) -> None:
            if error is None and self._context.prune(self._partition, offset):
                self._pruned = offset
                self._context.statistics.last_pruned_offsets[self._partition] = offset

        return CoordinatorResult(appended=committed)
