"""Fetch of a replica: up to the log end; its fetch offsets report its progress (KIP-227, KIP-903).

A follower's progress is accepted only if the metadata confirms it: a broker of that id, in its current incarnation,
with a replica of the partition. Other clients with a replica id are refused, so that they can't advance a high
watermark by posing as a follower (CVE-2018-1288). Progress is recorded once per request, on arrival, and only for
partitions in which its log matches the leader's. A fully replicated partition becomes idle in its session.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.protocol.fetch import FetchPartitionResult, ParsedFetchRequest
from ottla.replica.fetch_session import FetchContext, SessionPartition
from ottla.replica.manager import ReplicaManager
from ottla.replica.partition import EpochEnd, Partition
from ottla.replica.purgatory import Watch
from ottla.server.handlers.data.context import DataContext
from ottla.server.handlers.data.fetching import Fetch, ReadRound
from ottla.server.requests.request import Request
from ottla.storage.files.off_loop import Known, WouldBlock
from ottla.storage.segment.data import SegmentRegion

Place = tuple[SessionPartition, Partition | FetchPartitionResult]
"""A partition to read from, or its result if nothing is read: an error, or a diverging log."""


class Follower(NamedTuple):
    """The fetching follower, the request's arrival time, and the remaining bytes of the response."""

    replica_id: int
    broker_epoch: int
    started_s: float
    max_bytes: int
    replicas: ReplicaManager

    @classmethod
    def identify(cls, context: DataContext, request: Request, message: ParsedFetchRequest) -> Follower | None:
        """The follower that a request names; None if the metadata has no such broker in this incarnation."""
        replica_id, broker_epoch = message.replica_state
        if replica_id == context.metadata.node_id or context.replicas.cluster.broker_epoch(replica_id) != broker_epoch:
            return None
        max_bytes = min(message.max_bytes, context.fetch_max_bytes)
        return cls(replica_id, broker_epoch, request.started_s, max_bytes, context.replicas)

    def held_back(self, partition: Partition) -> bool:
        """Whether the replication throttle sends nothing to an out-of-sync replica now (KIP-73)."""
        throttles = self.replicas.throttles
        return (
            throttles.leader.limited
            and self.replica_id not in partition.state.isr
            and throttles.applies_as_leader(partition, self.replica_id)
            and throttles.leader.exceeded(self.started_s)
        )

    def sent(self, partition: Partition, byte_count: int) -> None:
        """Count the bytes sent to a throttled replica."""
        throttles = self.replicas.throttles
        if throttles.applies_as_leader(partition, self.replica_id):
            throttles.leader.record(byte_count, self.started_s)


class FollowerFetch(Fetch):
    """A fetch of a replica."""

    __slots__ = ("_follower",)

    def __init__(
        self,
        context: DataContext,
        request: Request,
        message: ParsedFetchRequest,
        session: FetchContext,
        follower: Follower,
    ) -> None:
        super().__init__(context, request, message, session)
        self._follower = follower

    def read(self, known: Known | None = None) -> ReadRound:
        """See `Fetch`. A request that was parked (`known` is None) reports no new progress of the follower."""
        follower, session = self._follower, self._session
        note = known is not None
        # All of them before anything is read: a coordinator whose records this advances may append at once to
        # partitions of this very request, and nothing would wake the request for records appended before it parks.
        places = self._places(session.partitions, note=note)
        if note:
            # Such an append reactivates partitions that were idle in the session, behind those that were active.
            woken = session.partitions[len(places) :]
            if woken:
                places += self._places(woken, note=False)
        done = ReadRound()
        left = follower.max_bytes
        for asked, partition in places:
            if isinstance(partition, FetchPartitionResult):
                done.urgent = True
                done.rows.append((asked, partition))
                continue
            try:
                if partition.offline or not partition.is_leader:
                    partition.check_leader()  # again, since its position was determined
                offsets, region = partition.offsets, None
                if asked.fetch_offset != offsets.log_end_offset and not follower.held_back(partition):
                    limit = max(0, min(asked.max_bytes, left))
                    found = partition.log.reader.read(
                        asked.fetch_offset,
                        limit,
                        max_offset=offsets.log_end_offset,
                        min_one_batch=done.byte_count == 0,
                        known=known,
                    )
                    done.byte_count += found.length
                    region = found.records
                    if region is not None:
                        left -= region.length
                        follower.sent(partition, region.length)
                if (
                    region is not None
                    or not session.incremental
                    or asked.moved(offsets.high_watermark, offsets.log_start_offset)
                ):
                    done.rows.append((asked, _answer(asked, partition, region)))
                elif note and partition.mark_follower_idle(follower.replica_id, asked.fetch_offset, asked):
                    asked.rest(partition.follower_watch)
            except WouldBlock as needed:
                done.needed.append(needed)
                if done.full:
                    break
            except Exception as error:
                done.urgent = True
                done.rows.append((asked, self.failed(asked, error)))
        return done

    def _places(self, partitions: list[SessionPartition], *, note: bool) -> list[Place]:
        """The positions to read from, in order of `partitions`; `note`: the follower's offsets are new progress."""
        follower = self._follower
        places: list[Place] = []
        for asked in partitions:
            try:
                partition = follower.replicas.find(asked.topic, asked.index)
                partition.check_follower(asked.current_leader_epoch, follower.replica_id)
                offset, diverging = asked.fetch_offset, None
                if asked.last_fetched_epoch >= 0:
                    diverging = partition.follower_divergence(offset, asked.last_fetched_epoch)
                if diverging is not None:
                    places.append((asked, _answer(asked, partition, None, diverging)))
                    continue
                if note and partition.offsets.log_start_offset <= offset <= partition.offsets.log_end_offset:
                    partition.follower_fetched(
                        follower.replica_id, offset, asked.log_start_offset, follower.broker_epoch, follower.started_s
                    )
                places.append((asked, partition))
            except Exception as error:
                places.append((asked, self.failed(asked, error)))
        return places

    def watch(self, partition: Partition) -> Watch:
        """Followers read newly appended records."""
        return partition.follower_watch

    def diverged(self, asked: SessionPartition) -> None:
        """A follower that has to truncate its log ignores the rest of the response."""
        asked.mark_changed()


def _answer(
    asked: SessionPartition, partition: Partition, region: SegmentRegion | None, diverging: EpochEnd | None = None
) -> FetchPartitionResult:
    offsets = partition.offsets
    return FetchPartitionResult(
        asked.index,
        0,
        offsets.high_watermark,
        partition.log.last_stable_offset(offsets.high_watermark),
        offsets.log_start_offset,
        region,
        diverging_epoch=diverging,
    )
