"""Truncation of a follower's log to its leader's: the first fetch offset, and where to truncate. Pure.

A fetch carries the epoch of the last record of the follower. If the logs diverge, the leader answers with the largest
epoch not above it and the end of that epoch (KIP-595). The follower truncates and fetches again, with an older epoch
each time, until both agree (KIP-101, KIP-279). So records that the leader also has are never truncated, regardless of
the high watermarks.

The truncation itself, and the case that the leader no longer has the offset, are in `replica.fetcher`.
"""

from __future__ import annotations

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


def first_fetch_offset(log_end_offset: int, latest_epoch: int, high_watermark: int) -> int:
    """Return the follower's first fetch offset: its end, or the last known agreement if its log has no epochs."""
    return log_end_offset if latest_epoch != UNDEFINED_EPOCH else min(high_watermark, log_end_offset)


def truncation_offset(
    leader_epoch_end: tuple[int, int], own_epoch_end: tuple[int, int], log_end_offset: int, fetch_offset: int
) -> int:
    """Return the offset at which the follower's log must end before the next fetch.

    `leader_epoch_end` is (epoch, end offset) of the leader's answer; `own_epoch_end` is the follower's own pair for
    that epoch: the largest epoch not above it, and its end. (-1, -1) means unknown.
    """
    epoch, end_offset = leader_epoch_end
    if end_offset == UNDEFINED_OFFSET:
        # The leader has no epoch to compare with, so the fetch offset is the last known agreement.
        return min(fetch_offset, log_end_offset)
    own_epoch, own_end = own_epoch_end
    if epoch == UNDEFINED_EPOCH or own_epoch == UNDEFINED_EPOCH:
        return min(end_offset, log_end_offset)
    if own_epoch != epoch:
        # The follower never had the leader's epoch: it drops its later epochs, and the older one is compared next.
        return min(own_end, log_end_offset)
    return min(own_end, end_offset, log_end_offset)
