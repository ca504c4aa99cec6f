"""Isolation and repair of this broker's damaged replicas, from another replica.

Damage is reported to `found` by a scan of the files, and by the check of a log that opens (unrepaired damage, or a
leader epoch above the current one). If a follower cannot fetch beyond an offset, `suspect` scans that segment. For a
partition with other replicas:

1. If another in-sync replica can take over, the damaged replica loses leadership and leaves the ISR. The controller
   records its directory as `LOST_UUID` (AssignReplicasToDirs, KIP-858). Without another in-sync replica, the leader
   continues to serve its undamaged records until one has joined.
2. As a follower it fetches nothing, so that no leader counts it as caught up.
3. Out of the ISR it fetches the damaged segments again (`replica.segment_repair`), reports its directory, and follows
   normally.

The assignment to `LOST_UUID` in the metadata survives a restart: then all of its segments are scanned before it
follows a leader.

Invariant: a replica with known damage is never reported in a directory other than `LOST_UUID`.

Periodic scans (scrubbing) are in `storage.repair`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.errors import KafkaError
from ottla.common.platform.clock import BlockingPool, Scheduler, TimerHandle
from ottla.common.platform.peer import Address, PeerNetwork
from ottla.common.runbooks import DAMAGED_DATA
from ottla.replica.partition import Partition
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.damage import Damage
from ottla.storage.files.log_config import MAX_LONG
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.replica.segment_repair import SegmentRepair

logger = logging.getLogger(__name__)

REPORT_AGAIN_S = 2.0
"""Delay before `report_lost` is repeated, while the metadata still has the replica in the ISR or as leader."""
FIRST_RETRY_S = 0.5
MAX_RETRY_S = 30.0

Key = tuple[bytes, int]


class RepairContext(NamedTuple):
    """Broker services that repairs need."""

    node_id: int
    peers: PeerNetwork
    pool: BlockingPool
    scheduler: Scheduler
    address_of: Callable[[int], Address | None]
    alive: Callable[[int], bool]
    """Whether a broker is registered and not fenced."""
    logs: LogManager
    report_lost: Callable[[Partition], None]
    """Lets the controller remove the replica from the ISR and from leadership, if another one is available."""
    report_undamaged: Callable[[Partition], None]
    """Reports the directory of the replica to the controller, if the metadata has another one."""
    place: Callable[[Partition], None]
    """Lead, follow or isolate the partition, by its state and `ReplicaRepair.holds`."""


class _Replica:
    """A replica that is damaged, or scanned before it may follow."""

    __slots__ = ("damages", "is_alone", "partition", "repair", "retry_s", "scanning", "timer")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.damages: list[Damage] = []
        self.scanning = False
        self.repair: SegmentRepair | None = None
        self.is_alone = False
        """Whether the lack of another in-sync replica was logged."""
        self.retry_s = FIRST_RETRY_S
        self.timer: TimerHandle | None = None


class ReplicaRepair:
    """Repairs of one broker. Owned by the loop."""

    __slots__ = ("_context", "_replicas", "_scans", "_stopped")

    def __init__(self, context: RepairContext) -> None:
        self._context = context
        self._replicas: dict[Key, _Replica] = {}
        self._scans: dict[Key, None] = {}
        """Partitions with a segment scan in progress."""
        self._stopped = False

    def __len__(self) -> int:
        """Number of replicas that are damaged, or scanned after a restart."""
        return len(self._replicas)

    def holds(self, partition: Partition) -> bool:
        """Return whether the partition must not follow its leader now."""
        return (partition.topic_id, partition.index) in self._replicas

    # -- damage --------------------------------------------------------------------------------------------------------

    def found(self, partition: Partition, damage: Damage) -> None:
        """Record a damaged range of the partition's log; the caller has logged it."""
        if self._stopped:
            return
        replica = self._replica(partition)
        if any(_covers(known, damage) for known in replica.damages):
            return
        replica.damages.append(damage)
        self._context.place(partition)

    def suspect(self, partition: Partition, offset: int) -> None:
        """Scan the segment at `offset`: a follower cannot fetch beyond it, so the records sent to it may be damaged."""
        key = (partition.topic_id, partition.index)
        if not self._stopped and key not in self._replicas and key not in self._scans:
            self._scans[key] = None
            segments = partition.log.segments.holding(offset)[:1]
            self._scan(partition, deque(segments), lambda: self._scans.pop(key, None))

    def scan_all(self, partition: Partition) -> None:
        """Isolate a replica that was damaged before the restart, until all of its segments are scanned."""
        replica = self._replica(partition)
        replica.scanning = True

        def scanned() -> None:
            replica.scanning = False
            if self._is_current(replica):
                if not replica.damages:
                    self._complete(replica)
                self._context.place(partition)

        self._scan(partition, deque(partition.log.segments), scanned)

    def _replica(self, partition: Partition) -> _Replica:
        key = (partition.topic_id, partition.index)
        replica = self._replicas.get(key)
        if replica is None:
            replica = self._replicas[key] = _Replica(partition)
        return replica

    def _scan(self, partition: Partition, waiting: deque[Segment], then: Callable[[], object]) -> None:
        """Scan one segment after the other in the pool, skipping deleted ones; then call `then`."""
        from ottla.storage.repair.segment_scrub import IndexCheck, SegmentFacts, SegmentScrub  # imported here: rare

        log, segments = partition.log, partition.log.segments
        while waiting and segments[segments.number_of(waiting[0].base_offset)] is not waiting[0]:
            waiting.popleft()
        if not waiting or self._stopped:
            then()
            return
        segment = waiting.popleft()
        following = segments.number_of(segment.base_offset) + 1
        end_offset = segments[following].base_offset if following < len(segments) else log.log_end_offset
        facts = SegmentFacts(segment.base_offset, end_offset, segment.data.size_bytes, log.epochs.entries())
        descriptor = segment.data.descriptor
        try:
            scrub = SegmentScrub(descriptor.pin(), facts, IndexCheck((), (), _ignored))
        except OSError as error:
            logger.warning("%s can't be scanned: %s", segment.data.path, error)
            self._scan(partition, waiting, then)
            return

        def scanned(_: object, error: BaseException | None) -> None:
            descriptor.unpin()
            if error is not None:
                logger.warning("%s can't be scanned: %s", segment.data.path, error)
            else:
                for damage in scrub.damages((partition.topic, partition.index)):
                    logger.error("%s is damaged, its %s. See %s.", segment.data.path, damage, DAMAGED_DATA)
                    self.found(partition, damage)
            self._scan(partition, waiting, then)

        self._context.pool.submit(lambda: scrub.run(MAX_LONG), scanned)

    # -- repair --------------------------------------------------------------------------------------------------------

    def advance(self, partition: Partition) -> None:
        """Take the next step for an isolated partition after a new state or finding."""
        replica = self._replicas[partition.topic_id, partition.index]
        state, context = partition.state, self._context
        if replica.timer is not None:
            replica.timer.cancel()
            replica.timer = None
        if replica.repair is not None:
            if partition.is_leader or replica.repair.leader_epoch != state.leader_epoch:
                replica.repair.cancel()
        elif replica.scanning or partition.offline:
            return
        elif partition.is_leader or context.node_id in state.isr:
            others = [member for member in state.isr if member != context.node_id and context.alive(member)]
            if others:
                replica.is_alone = False
                context.report_lost(partition)
            elif not replica.is_alone:
                replica.is_alone = True
                logger.error(
                    "%r is damaged and no other replica of it is in sync: undamaged records are still served, and the "
                    "repair starts once another replica can lead",
                    partition,
                )
            self._later(replica, REPORT_AGAIN_S)
        elif replica.damages:
            self._repair(replica)

    def _repair(self, replica: _Replica) -> None:
        from ottla.replica.segment_repair import SegmentRepair  # imported here: rare

        partition, context = replica.partition, self._context
        address = context.address_of(partition.state.leader_id)
        if address is None:
            self._retry(replica, "it has no leader now")
            return
        repaired = tuple(replica.damages)
        connection = context.peers.connect(*address)
        try:
            replica.repair = SegmentRepair(
                partition,
                min(damage.segment for damage in repaired),
                max(damage.last_offset for damage in repaired),
                compacted_in=context.logs if self._was_compacted(partition) else None,
                connection=connection,
                pool=context.pool,
                ended=partial(self._ended, replica, repaired),
            )
        except (KafkaError, OSError) as error:
            connection.close()
            self._retry(replica, str(error))

    def _was_compacted(self, partition: Partition) -> bool:
        cleaned = self._context.logs.cleaner_checkpoint.get((partition.topic, partition.index)) is not None
        return cleaned or partition.log.config.compacted

    def _ended(self, replica: _Replica, repaired: tuple[Damage, ...], reason: str) -> None:
        replica.repair = None
        if not self._is_current(replica):
            return
        if replica.partition.log.failed:
            logger.error("%r can't be repaired: %s", replica.partition, reason)
            replica.partition.mark_offline()
            return
        if reason:
            self._retry(replica, reason)
            return
        logger.warning(
            "%r is repaired: segments from %d on were fetched from the leader", replica.partition, repaired[0].segment
        )
        replica.damages = [damage for damage in replica.damages if damage not in repaired]
        replica.retry_s = FIRST_RETRY_S
        if not replica.damages:
            self._complete(replica)
        self._context.place(replica.partition)

    def _complete(self, replica: _Replica) -> None:
        partition = replica.partition
        del self._replicas[partition.topic_id, partition.index]
        self._context.report_undamaged(partition)

    def _retry(self, replica: _Replica, reason: str) -> None:
        logger.info("repair of %r is retried later: %s", replica.partition, reason)
        self._later(replica, replica.retry_s)
        replica.retry_s = min(replica.retry_s * 2, MAX_RETRY_S)

    def _later(self, replica: _Replica, delay_s: float) -> None:
        if not self._stopped:
            replica.timer = self._context.scheduler.call_later(delay_s, self._again, replica)

    def _again(self, replica: _Replica) -> None:
        replica.timer = None
        if self._is_current(replica):
            self.advance(replica.partition)

    def _is_current(self, replica: _Replica) -> bool:
        partition = replica.partition
        return not self._stopped and self._replicas.get((partition.topic_id, partition.index)) is replica

    # -- end of a replica ----------------------------------------------------------------------------------------------

    def forget(self, key: Key) -> None:
        """Drop the repair: this broker no longer has the replica."""
        replica = self._replicas.pop(key, None)
        if replica is not None:
            self._cancel(replica)

    def stop(self) -> None:
        """Repair nothing more: the next start scans replicas that the metadata has in `LOST_UUID`."""
        self._stopped = True
        for replica in self._replicas.values():
            self._cancel(replica)

    @staticmethod
    def _cancel(replica: _Replica) -> None:
        if replica.timer is not None:
            replica.timer.cancel()
        if replica.repair is not None:
            replica.repair.cancel()


def _covers(known: Damage, damage: Damage) -> bool:
    return (
        known.segment == damage.segment
        and known.first_offset <= damage.first_offset
        and known.last_offset >= damage.last_offset
    )


def _ignored(problem: str) -> None:
    """Ignore problems of indexes, which this scan does not check."""
