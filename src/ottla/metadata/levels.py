"""The levels of `metadata.version`: their names, and in which versions records are written at each (KIP-778).

Source: `MetadataVersion` of Apache Kafka 4.4. A level switches records and behaviour for the whole cluster, so what a
controller writes follows the finalized level and not what this node could write. What each switches here is in
docs/feature-levels.md.

Left out: levels below 3.7-IV2, whose records name no directories, and whose controllers are not registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class MetadataLevel(NamedTuple):
    """One level: `name` as tools show it; `changes_metadata` where the level before can't hold what this one writes."""

    level: int
    name: str
    changes_metadata: bool


METADATA_LEVELS: Mapping[int, MetadataLevel] = {
    row[0]: MetadataLevel(*row)
    for row in (
        (17, "3.7-IV2", True),
        (18, "3.7-IV3", False),
        (19, "3.7-IV4", False),
        (20, "3.8-IV0", False),
        (21, "3.9-IV0", False),
        (22, "4.0-IV0", False),
        (23, "4.0-IV1", True),
        (24, "4.0-IV2", False),
        (25, "4.0-IV3", False),
        (26, "4.1-IV0", False),
        (27, "4.1-IV1", False),
        (28, "4.2-IV0", False),
        (29, "4.2-IV1", False),
        (30, "4.3-IV0", True),
        (31, "4.4-IV0", False),
        (32, "4.4-IV1", True),
        (33, "4.4-IV2", True),
    )
}
"""By level, ascending, without a gap."""

LOWEST_LEVEL, HIGHEST_LEVEL = min(METADATA_LEVELS), max(METADATA_LEVELS)

ELIGIBLE_LEADERS = 23
"""Records name replicas that may lead without being in the ISR (KIP-966)."""
CORDONED_DIRECTORIES = 30
"""Registrations name directories that take no new replicas (KIP-1066)."""


def metadata_changed(low: int, high: int) -> bool:
    """Whether a level above `low`, up to `high`, writes what `low` can't hold."""
    return any(METADATA_LEVELS[level].changes_metadata for level in range(low + 1, high + 1))
