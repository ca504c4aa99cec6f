"""Context that all shards of the share coordinator share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.common.platform.clock import Clock
from ottla.coordinator.share.config import ShareCoordinatorConfig
from ottla.coordinator.share.memory import ShareMemory
from ottla.coordinator.share.statistics import ShareCoordinatorStatistics
from ottla.metadata.image import MetadataImage


class ShardContext(NamedTuple):
    """Created once for a broker."""

    config: ShareCoordinatorConfig
    image: Callable[[], MetadataImage]
    """Returns the newest metadata."""
    clock: Clock
    memory: ShareMemory
    prune: Callable[[int, int], bool]
    """`prune(partition, offset)` deletes the records below `offset` from a partition of `__share_group_state`; returns
    whether that succeeded."""
    statistics: ShareCoordinatorStatistics
