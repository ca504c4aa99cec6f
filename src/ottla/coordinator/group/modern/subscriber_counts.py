"""Number of members that subscribe to each topic of a group, so that no heartbeat iterates over all members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ottla.timeline import TimelineDict


def add_count(counts: TimelineDict[str, int], key: str, step: int) -> None:
    """Change the count of `key`; a count of 0 has no entry."""
    count = counts.get(key, 0) + step
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)


def positive_counts(counts: Mapping[str, int], changes: Counter[str]) -> set[str]:
    """Return the keys with a count above 0 after `changes`."""
    names = {name for name in counts if name not in changes}
    names |= {name for name, change in changes.items() if counts.get(name, 0) + change > 0}
    return names
