"""How a follower brings its log in line with its leader's: where to begin to fetch, and where to cut. Pure.

A fetch names the epoch of the last record that the follower has. A leader whose log left the follower's answers with
the largest epoch not above it and where that ended (KIP-595); the follower cuts and asks again, with an older epoch
each time, until both agree (KIP-101, KIP-279). So nothing is cut that the leader has too, whatever the high watermarks
are.

Left out: the cut itself, and what happens when the leader no longer has the offset at all (`replica.fetcher`).
"""

from __future__ import annotations

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


def first_fetch_offset(log_end_offset: int, latest_epoch: int, high_watermark: int) -> int:
    """Where a follower begins: at its end, or where it knows to agree when its log has no epochs to compare."""
    return log_end_offset if latest_epoch != UNDEFINED_EPOCH else min(high_watermark, log_end_offset)


def truncation_offset(
    leader_epoch_end: tuple[int, int], own_epoch_end: tuple[int, int], log_end_offset: int, fetch_offset: int
) -> int:
    """Where the follower's log is to end before it fetches again.

    `leader_epoch_end` is (epoch, end offset) of the leader's answer; `own_epoch_end` what the follower itself has for
    that epoch: the largest one not above it, and where it ends. (-1, -1) means unknown.
    """
    epoch, end_offset = leader_epoch_end
    if end_offset == UNDEFINED_OFFSET:
        return min(fetch_offset, log_end_offset)
    own_epoch, own_end = own_epoch_end
    if epoch == UNDEFINED_EPOCH or own_epoch == UNDEFINED_EPOCH:
        return min(end_offset, log_end_offset)
    if own_epoch != epoch:
        # The follower never had the leader's epoch: what it has of later ones goes, and the older one is compared next.
        return min(own_end, log_end_offset)
    return min(own_end, end_offset, log_end_offset)
