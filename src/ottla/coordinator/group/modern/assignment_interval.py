"""Minimum time between two target assignments of a group (KIP-1263)."""

from __future__ import annotations


def may_assign(computed_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Return whether the last target is old enough.

    `computed_ms` is 0 without a target. A clock that moved backwards does not delay the next target.
    """
    return not computed_ms or now_ms >= computed_ms + interval_ms or now_ms < computed_ms
