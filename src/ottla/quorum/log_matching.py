"""Comparison of a replica's log with that of the leader (KIP-595, KIP-630). Pure."""

from __future__ import annotations

from ottla.quorum.raft_types import FetchVerdict, OffsetAndEpoch, RaftLog


def compare_logs(log: RaftLog, place: OffsetAndEpoch) -> FetchVerdict:
    """Compare a follower's log, which ends at `place`, with the leader's."""
    start, earliest = log.start_offset, log.earliest_snapshot
    if place == OffsetAndEpoch(0, 0) and start == 0:
        return FetchVerdict()
    if earliest is not None and (
        place.end_offset < start
        or (place.end_offset == start and place.epoch != earliest.epoch)
        or place.epoch < earliest.epoch
    ):
        return FetchVerdict(snapshot=log.latest_snapshot)
    end = log.end_offset_of_epoch(place.epoch)
    if end.epoch != place.epoch or end.end_offset < place.end_offset:
        return FetchVerdict(diverging=end)
    return FetchVerdict()


def has_caught_up(log: RaftLog, epoch: int, high_watermark: int) -> bool:
    """Whether all committed records are on disk here, by the high watermark of the leader of `epoch`.

    The leader was elected without this replica's vote since the damage, and in no older epoch than it knew, so it has
    them; it proves that once a record of its epoch is committed.
    """
    if high_watermark > log.flushed_offset or log.last_epoch != epoch:
        return False
    snapshot = log.latest_snapshot
    return high_watermark > log.end_offset_of_epoch(epoch - 1).end_offset or (
        snapshot is not None and snapshot.epoch == epoch
    )
