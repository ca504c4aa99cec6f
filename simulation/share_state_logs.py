"""Check of share coordinators against their logs, by a second implementation that has a state for each offset.

- coordinator-state: snapshots and updates of a log give the state of its coordinator, at each moment without pending
  append;
- snapshot-loses-state: a snapshot contains at least the state that the records before it give;
- start-offset-monotonic, leader-epoch, state-epoch: none of them falls from record to record, except that a new state
  epoch has a new start offset;
- prune: the rest of a pruned log gives the same state as all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.common.errors import KafkaError
from ottla.common.kafka.internal_topics import SHARE_GROUP_STATE_TOPIC
from ottla.common.kafka.share_state import SharePartitionKey, StateBatch
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.share.records import decode_record
from ottla.coordinator.share.shard import ShareCoordinatorShard
from ottla.coordinator.share.state import ShareDeletion, ShareRecord, ShareSnapshot, StoredState
from ottla.replica.partition import Partition
from ottla.server.broker import Broker
from ottla.server.coordination.coordinator_host import CoordinatorType
from simulation.checkers import Violation
from simulation.coordinator_logs import log_batches
from simulation.node import SimNode

Cells = dict[int, tuple[int, int]]
"""Delivery count and state of each offset that has one."""


class _State(NamedTuple):
    """State of one share partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    cells: Cells


States = dict[SharePartitionKey, _State]


class ShareStateLogs:
    """Reads the logs of all share coordinators incrementally, one log for each time that a broker became leader."""

    def __init__(self, nodes: Sequence[SimNode]) -> None:
        self._nodes = nodes
        self._read: dict[tuple[str, int, int], tuple[int, int, States]] = {}
        """Log start and end offset that were read, and the state there."""
        self.records = self.prunes = 0

    def look(self) -> None:
        """Compare every coordinator with its log. Raises Violation."""
        for node in self._nodes:
            if node.broker is not None:
                self._look_at(node.host, node.broker)

    def states(self) -> set[SharePartitionKey]:
        """Share partitions with a state in any coordinator."""
        return {
            key
            for node in self._nodes
            if node.broker is not None and CoordinatorType.SHARE in node.broker.parts.coordinations
            for _, shard in node.broker.parts.coordinations[CoordinatorType.SHARE].runtime.active_shards()
            for key in shard.states
        }

    def _look_at(self, host: str, broker: Broker) -> None:
        coordination = broker.parts.coordinations.get(CoordinatorType.SHARE)
        if coordination is None:
            return
        runtime: CoordinatorRuntime[ShareCoordinatorShard] = coordination.runtime
        if runtime.pending_records():
            return
        for index, shard in runtime.active_shards():
            epoch = runtime.leader_epoch(index)
            try:
                log = broker.parts.replicas.find(SHARE_GROUP_STATE_TOPIC, index)
                log.check_leader(epoch)
                states = self._folded((host, index, epoch), log)
            except (KafkaError, OSError):
                continue  # The disk fails, or another broker leads; the coordinator does not know it yet.
            believed = {key: _state(state) for key, state in shard.states.items()}
            _compare("coordinator-state", f"{host}, {SHARE_GROUP_STATE_TOPIC}-{index}", states, believed)

    def _folded(self, place: tuple[str, int, int], log: Partition) -> States:
        start, end = log.log.log_start_offset, log.log.log_end_offset
        known = self._read.get(place)
        if known is None or known[1] < start:
            states = self._fold({}, log, start)
        else:
            states = self._fold(known[2], log, known[1])
            if known[0] < start:
                self.prunes += 1
                _compare(
                    "prune", f"{place[0]}, {SHARE_GROUP_STATE_TOPIC}-{place[1]}", states, self._fold({}, log, start)
                )
        self._read[place] = (start, end, states)
        return states

    def _fold(self, states: States, log: Partition, position: int) -> States:
        for batch in log_batches(log, position):
            for record in batch.records():
                decoded = None if batch.is_control else decode_record(record.key or b"", record.value)
                if decoded is not None:
                    self.records += 1
                    apply_record(states, decoded)
        return states


def apply_record(states: States, record: ShareRecord) -> None:
    """Apply one record, and check it against the state before. Raises Violation.

    The first record of a share partition may be an update: the snapshot before it was deleted from the log, because a
    later one follows.
    """
    key = record.key
    before = states.get(key)
    if isinstance(record, ShareDeletion):
        states.pop(key, None)
        return
    if isinstance(record, ShareSnapshot):
        after = _State(
            record.snapshot_epoch,
            record.state_epoch,
            record.leader_epoch,
            record.start_offset,
            record.delivery_complete_count,
            _merged({}, record.batches, record.start_offset),
        )
        if before is not None:
            _check_snapshot(key, before, after)
        states[key] = after
        return
    if before is None:
        return
    start_offset = before.start_offset if record.start_offset < 0 else record.start_offset
    after = before._replace(
        leader_epoch=record.leader_epoch,
        start_offset=start_offset,
        complete_count=record.delivery_complete_count,
        cells=_merged(before.cells, record.batches, start_offset),
    )
    if record.snapshot_epoch != before.snapshot_epoch:
        _broken("coordinator-state", key, f"update of snapshot {record.snapshot_epoch}, not {before.snapshot_epoch}")
    _check_order(key, before, after)
    states[key] = after


def _check_snapshot(key: SharePartitionKey, before: _State, after: _State) -> None:
    _check_order(key, before, after)
    if after.state_epoch != before.state_epoch:
        return
    for offset, cell in before.cells.items():
        found = after.cells.get(offset)
        if offset >= after.start_offset and (found is None or found < cell):
            _broken("snapshot-loses-state", key, f"{offset} is {found} in a snapshot, and was {cell}")


def _check_order(key: SharePartitionKey, before: _State, after: _State) -> None:
    if after.state_epoch < before.state_epoch:
        _broken("state-epoch", key, f"{after.state_epoch} follows {before.state_epoch}")
    if after.leader_epoch < before.leader_epoch:
        _broken("leader-epoch", key, f"{after.leader_epoch} follows {before.leader_epoch}")
    if after.state_epoch == before.state_epoch and after.start_offset < before.start_offset:
        _broken("start-offset-monotonic", key, f"{after.start_offset} follows {before.start_offset}")


def _merged(cells: Cells, batches: Iterable[StateBatch], start_offset: int) -> Cells:
    merged = {offset: cell for offset, cell in cells.items() if offset >= start_offset}
    for batch in batches:
        for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
            merged[offset] = max(merged.get(offset, (-1, -1)), (batch.delivery_count, int(batch.state)))
    return merged


def _state(stored: StoredState) -> _State:
    return _State(
        stored.snapshot_epoch,
        stored.state_epoch,
        stored.leader_epoch,
        stored.start_offset,
        stored.delivery_complete_count,
        _merged({}, stored.batches, stored.start_offset),
    )


def _compare(rule: str, place: str, states: States, others: States) -> None:
    for key in sorted(states.keys() | others.keys(), key=lambda key: (key.group_id, key.topic_id, key.partition)):
        if states.get(key) != others.get(key):
            _broken(rule, key, f"{place} has {others.get(key)}, its records give {states.get(key)}")


def _broken(rule: str, key: SharePartitionKey, what: str) -> None:
    raise Violation(f"{rule}: {key.group_id} {key.topic_id.hex()[:6]}-{key.partition}: {what}")
