"""Comparison of a replica's log with that of the leader (KIP-595, KIP-630). Pure."""

from __future__ import annotations

from ottla.quorum.raft_types import FetchVerdict, OffsetAndEpoch, RaftLog


def compare_logs(log: RaftLog, log_end: OffsetAndEpoch) -> FetchVerdict:
    """Compare a follower's log, which ends at `log_end`, with the leader's."""
    start, earliest = log.start_offset, log.earliest_snapshot
    if log_end == OffsetAndEpoch(0, 0) and start == 0:
        return FetchVerdict()
    if earliest is not None and (
        log_end.end_offset < start
        or (log_end.end_offset == start and log_end.epoch != earliest.epoch)
        or log_end.epoch < earliest.epoch
    ):
        return FetchVerdict(snapshot=log.latest_snapshot)
    end = log.end_offset_of_epoch(log_end.epoch)
    if end.epoch != log_end.epoch or end.end_offset < log_end.end_offset:
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
